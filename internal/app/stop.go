package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// closer ends one part.
type closer struct {
	name string
	// share is the part of the remaining grace that close may take; 0 is all. Parts that wait for producers and clients
	// leave some time to the parts after them.
	share float64
	close func(ctx context.Context) error
}

// closeWith remembers how a part is closed. Only New and Run open parts, so no lock is needed.
func (a *App) closeWith(c closer) { a.closers = append(a.closers, c) }

// Stop ends all parts in the reverse order of their opening, within shutdown.grace, and returns the errors of parts
// that could not end in time. Stop may be called repeatedly and at any time; each call waits for the end of the parts,
// or of its context.
func (a *App) Stop(ctx context.Context) error {
	a.end()
	a.mu.Lock()
	running := a.running
	a.running = true
	a.mu.Unlock()
	if !running {
		defer close(a.ended)
		return a.close(ctx)
	}
	select {
	case <-a.ended:
		return a.stopErr
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close closes the parts.
func (a *App) close(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, withinGrace(a.settings.Shutdown.Grace))
	defer cancel()
	a.end()
	a.console.SetStopping()
	a.stopErr = errors.Join(closeAll(ctx, a.closers), a.served(ctx))
	a.logger.Info("stopped", "took_ms", time.Since(began).Milliseconds())
	return a.stopErr
}

// withinGrace is the time that the parts get together: a part whose time has ended still returns, and the process ends.
// Who waits for the grace to end kills the process.
func withinGrace(grace time.Duration) time.Duration { return grace - min(grace/10, time.Second) }

// served waits until the serving parts have returned: they return when they are closed.
func (a *App) served(ctx context.Context) error {
	if err := a.serving.Wait(ctx); err != nil {
		return fmt.Errorf("a serving part has not returned within shutdown.grace; the process ends anyway: %w", err)
	}
	return nil
}

// closeAll closes parts in reverse order. A part that fails keeps no other open.
func closeAll(ctx context.Context, closers []closer) error {
	var failures []error
	for _, c := range slices.Backward(closers) {
		if err := c.within(ctx); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return errors.Join(failures...)
}

// within closes the part in its share of the remaining time.
func (c closer) within(ctx context.Context) error {
	if end, bounded := ctx.Deadline(); bounded && c.share > 0 {
		left := time.Duration(float64(time.Until(end)) * c.share)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	return c.close(ctx)
}
