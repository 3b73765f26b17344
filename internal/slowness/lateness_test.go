package slowness

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPunctualProcessIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(t.Context(), time.Hour)
		defer end()
		var l Lateness
		l.Run(ctx)
		if late := l.Total(); late != 0 {
			t.Errorf("late by %v", late)
		}
	})
}

func TestSmallLatenessIsTolerated(t *testing.T) {
	var l Lateness
	for _, late := range []time.Duration{-time.Millisecond, 0, 15 * time.Millisecond, 2 * time.Second} {
		l.note(late)
	}
	if l.Total() != 2*time.Second {
		t.Errorf("late by %v", l.Total())
	}
}

func TestThrottlingIsRead(t *testing.T) {
	for _, stat := range []string{
		"usage_usec 5\nnr_periods 200\nnr_throttled 150\nthrottled_usec 9\nnr_bursts 0\n",
		"nr_periods 200\nnr_throttled 150\nthrottled_time 9\n",
	} {
		if periods, throttled := throttling(stat); periods != 200 || throttled != 150 {
			t.Errorf("%d of %d periods", throttled, periods)
		}
	}
	if periods, throttled := throttling("usage_usec 5\n"); periods != 0 || throttled != 0 {
		t.Errorf("%d of %d periods without a limit", throttled, periods)
	}
}
