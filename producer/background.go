package producer

import (
	"context"
	"fmt"
	"sync"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// background runs the work that no caller waits for, up to a limit. Close waits for this work and for running calls.
type background struct {
	ctx    context.Context
	cancel context.CancelFunc
	max    int

	// running holds the goroutines of the tasks.
	running lifecycle.Group

	mu     sync.Mutex
	closed bool
	calls  int
	tasks  int
	// lastLeft is closed when background is closed and no call is left.
	lastLeft chan struct{}
}

func newBackground(most int) *background {
	ctx, cancel := context.WithCancel(context.Background())
	return &background{ctx: ctx, cancel: cancel, max: most, lastLeft: make(chan struct{})}
}

// enter counts a call in and leave counts the call out. After close, enter fails with ErrClosed.
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
	b.closeLastLeft()
}

// run starts a task, or returns false when max tasks run. Only calls that have entered may start tasks, so no task
// starts once close has seen the last call leave.
func (b *background) run(task func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tasks >= b.max {
		return false
	}
	b.tasks++
	b.running.Go(func() {
		defer b.done()
		task(b.ctx)
	})
	return true
}

func (b *background) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks--
}

func (b *background) closeLastLeft() {
	if b.closed && b.calls == 0 {
		select {
		case <-b.lastLeft:
		default:
			close(b.lastLeft)
		}
	}
}

// close refuses new calls and waits until all calls and tasks have ended. When the context ends first, close cancels
// the remaining tasks and returns an error with their number.
func (b *background) close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.closeLastLeft()
	b.mu.Unlock()
	defer b.cancel()
	select {
	case <-b.lastLeft:
		if b.running.Wait(ctx) == nil {
			return nil
		}
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Errorf("%d calls and %d submits or markers were still under way; "+
		"the coordinator will ask about their messages: %w", b.calls, b.tasks, ctx.Err())
}
