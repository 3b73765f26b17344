package app

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/loop"
)

// passPauses is how long a loop waits after failed passes.
var passPauses = backoff.Exponential(500*time.Millisecond, 10*time.Second)

func (a *App) newLoop(name, schedule string, pass func(context.Context) (bool, error)) (*loop.Loop, error) {
	l, err := loop.New(loop.Config{
		Name: name, Schedule: cmp.Or(a.bounds.Schedules[name], schedule), Pass: pass, Backoff: passPauses.Delay,
		Logger: a.logger,
	})
	if err != nil {
		return nil, err
	}
	a.closeWith(closer{name: name + " loop", share: confirmShare, close: l.Stop})
	a.metrics.Loop(name,
		func() float64 { return float64(l.Status().Passes) }, func() float64 { return float64(l.Status().Failures) })
	return l, nil
}

// repeat starts a loop whose pass does all its work at once.
func (a *App) repeat(name, schedule string, pass func(context.Context) error) error {
	l, err := a.newLoop(name, schedule, func(ctx context.Context) (more bool, err error) { return false, pass(ctx) })
	if err != nil {
		return err
	}
	l.Start()
	return nil
}

// failuresTolerated is how many passes in a row may fail before a loop counts as not healthy: a pass may hit a
// reconnect.
const failuresTolerated = 2

func healthy(l *loop.Loop) func(context.Context) error {
	return func(context.Context) error {
		if status := l.Status(); status.Failures > failuresTolerated {
			return fmt.Errorf("the last %d passes failed: %w", status.Failures, status.LastError)
		}
		return nil
	}
}
