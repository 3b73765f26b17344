package backoff_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

func TestDelayStaysWithinItsStep(t *testing.T) {
	steps := backoff.Steps{time.Second, 10 * time.Second}
	for failures, step := range map[int]time.Duration{
		-1: time.Second, 0: time.Second, 1: 10 * time.Second, 99: 10 * time.Second,
	} {
		low, high := step, time.Duration(0)
		for range 2000 {
			d := steps.Delay(failures)
			low, high = min(low, d), max(high, d)
		}
		if low < step/2 || high > step {
			t.Errorf("after %d failures: %v to %v, want within %v to %v", failures, low, high, step/2, step)
		}
		if high-low < step/4 {
			t.Errorf("after %d failures: %v to %v is hardly any jitter", failures, low, high)
		}
	}
}

func TestDelayAfterGrowsWithElapsedTime(t *testing.T) {
	steps := backoff.Steps{time.Second, 10 * time.Second, time.Minute}
	for elapsed, step := range map[time.Duration]time.Duration{
		0: time.Second, time.Second: 10 * time.Second, 10 * time.Second: 10 * time.Second,
		11 * time.Second: time.Minute, time.Hour: time.Minute, -time.Minute: time.Second,
	} {
		if d := steps.DelayAfter(elapsed); d < step/2 || d > step {
			t.Errorf("after %v: %v, want within %v to %v", elapsed, d, step/2, step)
		}
	}
}

func TestExponentialDoublesUpToItsLimit(t *testing.T) {
	got := backoff.Exponential(100*time.Millisecond, time.Second)
	want := backoff.Steps{100, 200, 400, 800, 1000}
	for i := range want {
		if got.Step(i) != want[i]*time.Millisecond {
			t.Fatalf("got %v", got)
		}
	}
	if got.Step(50) != time.Second {
		t.Fatalf("the last step is %v", got.Step(50))
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := backoff.Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}
