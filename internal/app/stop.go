package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// lifetime is the life of a coordinator and of its parts: New and Run open them, and a stop closes them in reverse
// order.
type lifetime struct {
	// life ends when the coordinator is to stop; end ends life.
	life context.Context
	end  context.CancelFunc
	// failed gets the error of the first part that ends by itself.
	failed  chan error
	serving lifecycle.Group

	// closers end the parts, in the order in which they were opened.
	closers []closer
	mu      sync.Mutex
	running bool
	// ended is closed when all parts are closed; stopErr names the parts that could not end in time.
	ended   chan struct{}
	stopErr error
}

// begin begins the life, which no caller ends but end.
func (l *lifetime) begin() {
	l.failed, l.ended = make(chan error, 1), make(chan struct{})
	l.life, l.end = context.WithCancel(context.Background())
}

// claim says whether the caller is the first, who alone runs or closes the parts.
func (l *lifetime) claim() (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, l.running = !l.running, true
	return first
}

// closer ends one part.
type closer struct {
	name string
	// share is the part of the remaining grace that close may take; 0 is all. Parts that wait for producers and clients
	// leave some time to the parts after them.
	share float64
	close func(ctx context.Context) error
}

// closeWith remembers how a part is closed. Only New and Run open parts, so no lock is needed.
func (l *lifetime) closeWith(c closer) { l.closers = append(l.closers, c) }

// serve runs a part until the part ends. An error ends the coordinator.
func (l *lifetime) serve(name string, part func() error) {
	l.serving.Go(func() {
		if err := part(); err != nil {
			select {
			case l.failed <- fmt.Errorf("%s: %w", name, err):
			default:
			}
		}
	})
}

// Stop ends all parts in the reverse order of their opening, within shutdown.grace, and returns the errors of parts
// that could not end in time. Stop may be called repeatedly and at any time; each call waits for the end of the parts,
// or of its context.
func (a *App) Stop(ctx context.Context) error {
	a.end()
	if a.claim() {
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
func (l *lifetime) served(ctx context.Context) error {
	if err := l.serving.Wait(ctx); err != nil {
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
