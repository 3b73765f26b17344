package confirmloop

import (
	"time"

	"github.com/msghandler/msghandler/internal/backoff"
)

// standing is what a breaker says of the next call.
type standing uint8

const (
	// closed: call.
	closed standing = iota
	// open: do not call before the pause is over.
	open
	// due: the pause is over; one call may try.
	due
	// trying: that call is under way; wait for what it brings.
	trying
)

// breaker leaves a target alone that cannot be reached, and tries it with one call after each pause, or with a few. Only
// calls that did not get through count. It is not safe for concurrent use.
type breaker struct {
	// limit is how many calls in a row have to fail for it to open, tries how many of them for it to open again after a
	// pause; 0 is one.
	limit, tries int
	pause        backoff.Steps

	// failures counts calls in a row, opened how often it opened since one got through.
	failures, opened int
	until            time.Time
	// probing says that the one call is under way that may try.
	probing bool
}

func (b *breaker) standing(now time.Time) standing {
	switch {
	case b.probing:
		return trying
	case b.failures < b.limit:
		return closed
	case now.Before(b.until):
		return open
	}
	return due
}

// probe says that the next call is one that may try.
func (b *breaker) probe() {
	b.failures = b.limit - max(1, b.tries)
	b.probing = b.tries <= 1
}

// brokeOff says that a call that may try has ended. If that has told nothing, the next one may try.
func (b *breaker) brokeOff() {
	if b.probing {
		b.failures, b.probing = b.limit, false
	}
}

// lend allows a few calls though there is a pause, which lasts as long as before.
func (b *breaker) lend(calls int) {
	if b.failures >= b.limit {
		b.failures = b.limit - calls
	}
}

// succeed closes the breaker, and says whether it was open.
func (b *breaker) succeed() (reopened bool) {
	reopened = b.opened > 0
	b.failures, b.opened, b.probing, b.until = 0, 0, false, time.Time{}
	return reopened
}

// last has the next failure open the breaker.
func (b *breaker) last() { b.failures = max(b.failures, b.limit-1) }

// fail counts a call that did not get through, and says whether that opened the breaker. Calls that were under way when
// it opened tell nothing new: only those that try again make the pause grow.
func (b *breaker) fail(now time.Time) (opened bool) {
	if b.failures >= b.limit {
		return false
	}
	b.probing = false
	if b.failures++; b.failures < b.limit {
		return false
	}
	if now.Before(b.until) {
		return false
	}
	b.until = now.Add(b.pause.Delay(b.opened))
	b.opened++
	return b.opened == 1
}

// wait is how long a message waits that could not be asked about: until the target is tried again and a random moment
// more, so that they do not all come at once, or while the breaker is closed, a step of the same pause.
func (b *breaker) wait(now time.Time) time.Duration {
	if b.failures >= b.limit {
		return max(0, b.until.Sub(now)) + b.pause.Delay(0)
	}
	return b.pause.Delay(b.failures - 1)
}
