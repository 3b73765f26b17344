package redis

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/pacing"
)

// Most of the time belongs to others: after a slice comes a rest three times as long as the slice, and no two slices
// run at once.
func TestSlicesTakeTurnsAndRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer()
		begun := time.Now()
		var starts []time.Duration
		for range 3 {
			go p.inTurn(t.Context(), backlogRests, func() {
				starts = append(starts, time.Since(begun))
				time.Sleep(time.Millisecond)
			})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []time.Duration{0, 4 * time.Millisecond, 8 * time.Millisecond}; !slices.Equal(starts, want) {
			t.Errorf("slices began after %v, want %v", starts, want)
		}
	})
}

// A slice without an answer must not delay calls to a server that answers.
func TestHangingSliceLetsTheNextGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer()
		go p.inTurn(t.Context(), backlogRests, func() { time.Sleep(5 * time.Second) })
		synctest.Wait()
		begun := time.Now()
		p.inTurn(t.Context(), backlogRests, func() {
			if took := time.Since(begun); took != longestTurn {
				t.Errorf("the next pass began after %v, want %v", took, longestTurn)
			}
		})
		time.Sleep(10 * time.Second)
	})
}

func TestEndedCallSkipsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer()
		go p.inTurn(t.Context(), backlogRests, func() { time.Sleep(10 * time.Millisecond) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
		defer cancel()
		begun := time.Now()
		p.inTurn(ctx, backlogRests, func() {})
		if took := time.Since(begun); took != 3*time.Millisecond {
			t.Errorf("the call waited for %v", took)
		}
		time.Sleep(time.Second)
	})
}

func TestSliceIsAtLeastOneCall(t *testing.T) {
	of := func(messages ...int) (calls []*call) {
		for _, n := range messages {
			calls = append(calls, &call{messages: n})
		}
		return calls
	}
	for want, calls := range map[int][]*call{
		1: of(slice+1, 1), 2: of(slice-1, 1, 1), 3: of(1, 1, 1), 0: of(),
	} {
		if got := sliced(calls, slice); got != want {
			t.Errorf("a slice is %d calls, want %d", got, want)
		}
	}
}

// A backlog of an outage must end. A backlog that comes after an idle gap yields again.
func TestEndlessBacklogStopsYielding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer()
		wants := func(want bool) {
			t.Helper()
			p.clock.Fresh()
			if got := p.yields(); got != want {
				t.Errorf("yields: %t, want %t", got, want)
			}
		}
		for begun := time.Now(); time.Since(begun) < maxYield; time.Sleep(pacing.IdleGap) {
			wants(true)
		}
		wants(false)
		time.Sleep(pacing.IdleGap)
		wants(false)
		time.Sleep(pacing.IdleGap + time.Nanosecond)
		wants(true)
	})
}
