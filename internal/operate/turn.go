package operate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/access"
)

// rank orders the calls at a queue. A call ends a call of a lower rank, so a person without the right to
// change letters delays no operator.
type rank int

const (
	// viewing is a look of a person who may change no letter.
	viewing rank = iota
	// operating is a look of an operator, such as the count before a change.
	operating
	changing
	ranks
)

// rankOfLook is the rank of a look of the caller in the context.
func rankOfLook(ctx context.Context) rank {
	if access.From(ctx).Role >= access.Operator {
		return operating
	}
	return viewing
}

var (
	errBusy = errors.New("another call has the queue")
	// errYielded is the cause of the end of a call that a call of a higher rank has ended.
	errYielded = errors.New("a call of a higher rank has ended this one")
)

// turn lets one call at a time look at the letters of a queue, or change them.
type turn struct {
	// taken has a value while a call has the turn.
	taken chan struct{}

	mu sync.Mutex
	// waiting counts the calls that wait, by rank.
	waiting [ranks]int
	// holder is the rank of the call that has the turn, and yield ends that call; nil: no call has the turn.
	holder rank
	yield  context.CancelCauseFunc
}

func newTurn() *turn { return &turn{taken: make(chan struct{}, 1)} }

// acquire waits for the turn, for a time at most. The returned context ends when a call of a higher rank waits.
func (t *turn) acquire(ctx context.Context, of rank, wait time.Duration) (context.Context, func(), error) {
	t.announce(of)
	err := t.await(ctx, wait)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[of]--
	if err != nil {
		return nil, nil, err
	}
	for higher := of + 1; higher < ranks; higher++ {
		if t.waiting[higher] > 0 {
			<-t.taken
			return nil, nil, errBusy
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t.holder, t.yield = of, cancel
	return ctx, func() {
		t.mu.Lock()
		t.yield = nil
		t.mu.Unlock()
		cancel(nil)
		<-t.taken
	}, nil
}

// announce counts a call that waits, and ends a call of a lower rank.
func (t *turn) announce(of rank) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[of]++
	if t.yield != nil && t.holder < of {
		t.yield(errYielded)
	}
}

func (t *turn) await(ctx context.Context, wait time.Duration) error {
	select {
	case t.taken <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case t.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return errBusy
	}
}
