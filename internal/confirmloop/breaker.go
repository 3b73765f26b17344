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

// breaker leaves a target alone that cannot be reached, and tries it with one call after each pause. Only calls that
// did not get through count. It is not safe for concurrent use.
type breaker struct {
	limit int
	pause backoff.Steps

	failures int
	until    time.Time
	probing  bool
}

func (b *breaker) standing(now time.Time) standing {
	switch {
	case b.failures < b.limit:
		return closed
	case b.probing:
		return trying
	case now.Before(b.until):
		return open
	}
	return due
}

// probe marks the one call that may try.
func (b *breaker) probe() { b.probing = true }

// succeed closes the breaker, and says whether it was open.
func (b *breaker) succeed() (reopened bool) {
	reopened = b.failures >= b.limit
	b.failures, b.probing = 0, false
	return reopened
}

// fail counts a call that did not get through, and says whether that opened the breaker. Calls that were under way when
// it opened tell nothing new: only the one that tries again makes the pause grow.
func (b *breaker) fail(now time.Time) (opened bool) {
	if b.failures >= b.limit && !b.probing {
		return false
	}
	b.probing = false
	b.failures++
	if b.failures >= b.limit {
		b.until = now.Add(b.pause.Delay(b.failures - b.limit))
	}
	return b.failures == b.limit
}

// wait is how long a message waits that could not be asked about: until the target is tried again and a random moment
// more, so that they do not all come at once, or while the breaker is closed, a step of the same pause.
func (b *breaker) wait(now time.Time) time.Duration {
	if b.failures >= b.limit {
		return max(0, b.until.Sub(now)) + b.pause.Delay(0)
	}
	return b.pause.Delay(b.failures - 1)
}
