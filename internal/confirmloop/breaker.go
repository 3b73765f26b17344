package confirmloop

import (
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// breakerState says whether the next call may be made.
type breakerState uint8

const (
	// closed: call.
	closed breakerState = iota
	// open: no call before the pause has ended.
	open
	// halfOpen: the pause has ended; one call may probe.
	halfOpen
	// probeUnderWay: wait for the result of that call.
	probeUnderWay
)

// breaker is the circuit breaker of a target: closed, open for a pause, and half-open for one probe or a few after each
// pause. Only calls that did not reach the target count. A breaker is not safe for concurrent use.
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

func (b *breaker) state(now time.Time) breakerState {
	switch {
	case b.probing:
		return probeUnderWay
	case b.failures < b.limit:
		return closed
	case now.Before(b.until):
		return open
	}
	return halfOpen
}

// probe makes the next call the probe.
func (b *breaker) probe() {
	b.failures = b.limit - max(1, b.tries)
	b.probing = b.tries <= 1
}

// probeEnded ends a probe. Where the probe had no result, the next call may probe.
func (b *breaker) probeEnded() {
	if b.probing {
		b.failures, b.probing = b.limit, false
	}
}

// allowProbes lets a few calls through an open breaker, whose pause goes on.
func (b *breaker) allowProbes(calls int) {
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

// tripOnNextFailure lets the next failure open the breaker.
func (b *breaker) tripOnNextFailure() { b.failures = max(b.failures, b.limit-1) }

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

// pauseLeft is how long a message waits that could not be confirmed: until the next probe and a random moment more, so
// that messages do not return all at once; or, while the breaker is closed, a step of the same pause.
func (b *breaker) pauseLeft(now time.Time) time.Duration {
	if b.failures >= b.limit {
		return max(0, b.until.Sub(now)) + b.pause.Delay(0)
	}
	return b.pause.Delay(b.failures - 1)
}
