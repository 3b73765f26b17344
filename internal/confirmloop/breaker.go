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
	// halfOpen: the pause has ended; the next call is a probe.
	halfOpen
	// probeUnderWay: wait for the result of the probe.
	probeUnderWay
)

// breaker is the circuit breaker of a target: closed, open for a pause, and half-open for a probe or a few after each
// pause. A breaker is not safe for concurrent use.
type breaker struct {
	// limit is how many failed calls in a row open the breaker, tries how many open the breaker again after a pause; 0
	// is 1.
	limit, tries int
	pause        backoff.Steps

	// failures counts the failed calls in a row, opened how often the breaker opened since the last success.
	failures, opened int
	until            time.Time
	// probing says that the probe is under way.
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

// rests says that no call is to be made now: the pause or a probe is under way.
func (b *breaker) rests(now time.Time) bool {
	state := b.state(now)
	return state == open || state == probeUnderWay
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

// succeed closes the breaker, and says whether the breaker was open.
func (b *breaker) succeed() (reopened bool) {
	reopened = b.opened > 0
	b.failures, b.opened, b.probing, b.until = 0, 0, false, time.Time{}
	return reopened
}

// tripOnNextFailure lets the next failure open the breaker.
func (b *breaker) tripOnNextFailure() { b.failures = max(b.failures, b.limit-1) }

// fail counts a failed call, and says whether the breaker has opened now. Calls that were under way when the breaker
// opened say nothing new: only probes make the pause grow.
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

// pauseLeft is how long a message waits after a failed call: until the next probe and a random moment more, so that
// messages do not return all at once; or, while the breaker is closed, a step of the same pause.
func (b *breaker) pauseLeft(now time.Time) time.Duration {
	if b.failures >= b.limit {
		return max(0, b.until.Sub(now)) + b.pause.Delay(0)
	}
	return b.pause.Delay(b.failures - 1)
}
