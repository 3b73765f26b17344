// Package backoff computes growing, jittered and capped delays before another attempt.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Steps are growing delays; the last repeats.
type Steps []time.Duration

// Exponential returns Steps that double from first up to limit.
func Exponential(first, limit time.Duration) Steps {
	var steps Steps
	for d := first; d < limit; d *= 2 {
		steps = append(steps, d)
	}
	return append(steps, limit)
}

// Delay is the wait after a number of earlier failures: 0 gives the first step. The delay lies between half the step
// and the whole step, so that attempts which failed together are spread, and no attempt is immediate.
func (s Steps) Delay(failures int) time.Duration {
	step := s.Step(failures)
	if step <= 0 {
		return 0
	}
	return step - rand.N(step/2+1) //nolint:gosec // jitter is no secret
}

// DelayAfter is the wait of an attempt that has been retried for the elapsed time, without a count of failures.
func (s Steps) DelayAfter(elapsed time.Duration) time.Duration {
	failures := 0
	for failures < len(s) && elapsed >= s[failures] {
		elapsed -= s[failures]
		failures++
	}
	return s.Delay(failures)
}

// Step is Delay without its jitter.
func (s Steps) Step(failures int) time.Duration {
	if len(s) == 0 {
		return 0
	}
	return s[min(max(failures, 0), len(s)-1)]
}

// Sleep waits for the delay, or until the context ends; then it returns the context's error.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
