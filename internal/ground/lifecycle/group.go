// Package lifecycle starts and ends background work: a Group of goroutines whose end can be awaited with a context,
// and panics turned into errors.
package lifecycle

import (
	"context"
	"sync"
)

// Group counts goroutines and waits for their end. In contrast to a sync.WaitGroup, Wait takes a context, may be called
// before, between and after calls of Go, and leaves no goroutine behind when the context ends first. The zero value is
// ready for use. A Group is safe for concurrent use and must not be copied.
type Group struct {
	mu      sync.Mutex
	running int
	// idle is closed when running falls to zero; nil without a waiting call.
	idle chan struct{}
}

// Go runs work in a goroutine of the group.
func (g *Group) Go(work func()) {
	g.Begin()
	go func() {
		defer g.End()
		work()
	}()
}

// Begin counts work in a goroutine that another package has started, until the call of End.
func (g *Group) Begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running++
}

// End ends work that began with Begin.
func (g *Group) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.running == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// Wait returns nil once no goroutine of the group runs, or the context's error when the context ends first.
func (g *Group) Wait(ctx context.Context) error {
	idle := g.whenIdle()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// whenIdle returns a channel that is closed when the last goroutine ends, and nil where none runs.
func (g *Group) whenIdle() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == 0 {
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	return g.idle
}
