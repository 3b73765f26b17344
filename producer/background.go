package producer

import (
	"context"
	"fmt"
	"sync"
)

// background runs what callers do not wait for, up to a number, and lets Close wait for it and for the calls that are
// still running.
type background struct {
	ctx    context.Context
	cancel context.CancelFunc
	max    int

	mu     sync.Mutex
	closed bool
	calls  int
	tasks  int
	idle   chan struct{}
}

func newBackground(most int) *background {
	ctx, cancel := context.WithCancel(context.Background())
	return &background{ctx: ctx, cancel: cancel, max: most, idle: make(chan struct{})}
}

// enter counts a call in; leave counts it out. It fails with ErrClosed after close.
func (b *background) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	b.calls++
	return nil
}

func (b *background) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls--
	b.settle()
}

// run starts a task, unless as many are running as may; then it says no. Only calls that entered may start tasks, so
// none starts after close has found everything idle.
func (b *background) run(task func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tasks >= b.max {
		return false
	}
	b.tasks++
	go func() {
		defer b.done()
		task(b.ctx)
	}()
	return true
}

func (b *background) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks--
	b.settle()
}

func (b *background) settle() {
	if b.closed && b.calls == 0 && b.tasks == 0 {
		select {
		case <-b.idle:
		default:
			close(b.idle)
		}
	}
}

// close refuses new calls and waits until all calls and tasks have ended, or the context has; then it cancels the tasks
// that are left and says how many there were.
func (b *background) close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.settle()
	b.mu.Unlock()
	defer b.cancel()
	select {
	case <-b.idle:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Errorf("%d calls and %d submits or markers were still under way; "+
		"the coordinator will ask about their messages: %w", b.calls, b.tasks, ctx.Err())
}
