package pacing_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/pacing"
)

const maxYield = 2 * time.Second

func wantYields(t *testing.T, c *pacing.Clock, want bool) {
	t.Helper()
	if got := c.Yields(); got != want {
		t.Errorf("the backlog yields: %t, want %t", got, want)
	}
}

func TestBacklogYieldsWhileFreshWorkComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pacing.NewClock(maxYield)
		c.Backlog()
		wantYields(t, c, false)
		c.Fresh()
		wantYields(t, c, true)
		time.Sleep(time.Second)
		wantYields(t, c, false)
	})
}

// After an idle gap the backlog is another backlog, and yields again.
func TestEndlessBacklogStopsYielding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pacing.NewClock(maxYield)
		comes := func() { c.Fresh(); c.Backlog() }
		for begun := time.Now(); time.Since(begun) < maxYield; time.Sleep(pacing.IdleGap) {
			comes()
			wantYields(t, c, true)
		}
		comes()
		wantYields(t, c, false)
		time.Sleep(pacing.IdleGap)
		comes()
		wantYields(t, c, false)
		time.Sleep(pacing.IdleGap + time.Nanosecond)
		comes()
		wantYields(t, c, true)
	})
}
