package confirmloop

import (
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

func TestBreaker(t *testing.T) {
	now := time.Now()
	b := breaker{limit: 2, pause: backoff.Exponential(time.Second, 4*time.Second)}
	want := func(what string, standing breakerState) {
		t.Helper()
		if got := b.state(now); got != standing {
			t.Errorf("%s: stands at %d, want %d", what, got, standing)
		}
	}
	b.fail(now)
	want("after one failure", closed)
	b.succeed()
	b.fail(now)
	want("failures that are not in a row", closed)
	if !b.fail(now) {
		t.Error("the second failure in a row did not open the breaker")
	}
	want("after two in a row", open)
	until := b.until
	if b.fail(now) || b.until != until {
		t.Error("the failure of a call under way made the pause grow")
	}
	now = until
	want("after the pause", halfOpen)
	b.probe()
	want("while one tries", probeUnderWay)

	var last time.Duration
	for range 6 {
		b.fail(now)
		last = b.until.Sub(now)
		want("after a try that failed", open)
		now = b.until
		b.probe()
	}
	if last < 2*time.Second || last > 4*time.Second {
		t.Errorf("the pause grew to %v, want between half its limit and all of it", last)
	}
	if !b.succeed() {
		t.Error("a success did not close the breaker")
	}
	want("after a success", closed)
}

func TestSlowCallMakesNoSecondCall(t *testing.T) {
	now := time.Now()
	b := breaker{limit: 1, pause: backoff.Steps{time.Second}}
	b.fail(now)
	now = b.until
	b.fail(now)
	if got := b.state(now); got != halfOpen {
		t.Errorf("stands at %d, want due", got)
	}
}

func TestBreakerMayLetSeveralCallsTry(t *testing.T) {
	now := time.Now()
	b := breaker{limit: 3, tries: 2, pause: backoff.Steps{time.Second, time.Hour}}
	for range 3 {
		b.fail(now)
	}
	if b.state(now) != open || b.until.After(now.Add(time.Second)) {
		t.Fatalf("stands at %d until %v from now", b.state(now), b.until.Sub(now))
	}
	now = b.until
	b.probe()
	b.probeEnded() // one that told nothing uses up none
	b.fail(now)
	if got := b.state(now); got != closed {
		t.Errorf("after one of two: stands at %d", got)
	}
	if opened := b.fail(now); opened || b.state(now) != open || b.until.Before(now.Add(time.Minute)) {
		t.Errorf("after the second: stands at %d until %v from now", b.state(now), b.until.Sub(now))
	}
	now = b.until
	b.probe()
	if !b.succeed() || b.failures != 0 || b.opened != 0 {
		t.Errorf("after a success: %+v", b)
	}
	b.tripOnNextFailure()
	if !b.fail(now) {
		t.Error("the last failure did not open the breaker")
	}
}

func TestInconclusiveTryIsRepeated(t *testing.T) {
	now := time.Now()
	b := breaker{limit: 2, pause: backoff.Steps{time.Second}}
	b.fail(now)
	b.fail(now)
	now = b.until
	b.probe()
	b.probeEnded()
	if got := b.state(now); got != halfOpen {
		t.Errorf("stands at %d, want due", got)
	}
	b.probe()
	b.fail(now)
	b.probeEnded()
	if got := b.state(now); got != open {
		t.Errorf("after a failed probe: stands at %d, want open", got)
	}
}

func TestMessagesReturnSpreadOut(t *testing.T) {
	now := time.Now()
	b := breaker{limit: 1, pause: backoff.Steps{time.Minute, time.Hour}}
	b.fail(now)
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		wait := b.pauseLeft(now)
		low, high = min(low, wait), max(high, wait)
	}
	if pause := b.until.Sub(now); low < pause || high > pause+time.Minute || high-low < 20*time.Second {
		t.Errorf("messages wait %v to %v for a pause of %v", low, high, pause)
	}
}

func TestFailedCallPostponesItsMessages(t *testing.T) {
	now := time.Now()
	b := breaker{limit: 4, pause: backoff.Steps{time.Second, time.Minute, time.Hour}}
	for _, step := range b.pause {
		b.fail(now)
		if wait := b.pauseLeft(now); wait < step/2 || wait > step {
			t.Errorf("after %d failures messages wait %v, want half of %v to all of it", b.failures, wait, step)
		}
	}
}

func TestLentPlacesLengthenNoPause(t *testing.T) {
	now := time.Now()
	b := breaker{limit: 3, tries: 2, pause: backoff.Steps{time.Minute, time.Hour}}
	b.allowProbes(1)
	for range 3 {
		if b.state(now) != closed {
			t.Fatal("a probe lent to a closed breaker counts as a failure")
		}
		b.fail(now)
	}
	until := b.until
	b.allowProbes(1)
	if got := b.state(now); got != closed {
		t.Errorf("with a call lent: stands at %d", got)
	}
	if b.fail(now) || b.state(now) != open || b.until != until || b.opened != 1 {
		t.Errorf("after the failed probe: stands at %d, %+v", b.state(now), b)
	}
	if b.state(until) != halfOpen {
		t.Error("no call may try when the pause is over")
	}
}
