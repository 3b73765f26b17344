// Package sendloop brings committed messages to the broker: it claims due SENDABLE messages, publishes them and stores
// the broker's answers.
//
// Messages come in two ways. Pass claims due messages, the backlog; Offer takes messages that the confirm stage has
// just made SENDABLE. Both fill one bounded queue with a lane for each. Workers take batches from the lanes and publish
// them (publish.go).
package sendloop

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/pacing"
)

// maxYield is how long the backlog yields to fresh messages. A backlog that lasts longer is too large for that.
const maxYield = 2 * time.Second

// Sender is the send stage of an instance. The methods may be called concurrently.
type Sender struct {
	config  Config
	settler delivery.Settler
	// calls is the context of everything under way; cancel ends it when Close cannot wait any longer.
	calls  context.Context
	cancel context.CancelFunc
	// work counts the batches under way.
	work lifecycle.Group

	mu             sync.Mutex
	queue          *delivery.WorkQueue
	fresh, backlog publishLane
	clock          *pacing.Clock
	closing        bool
}

// publishLane is the lane of fresh messages or of the backlog. While both have messages, the backlog is published in
// batches of a share, one at a time: the broker takes messages in the order in which they come, so a batch at the
// broker stands before the next fresh message. One more batch may be settled meanwhile. A backlog that is alone, or has
// yielded for long enough, fills whole batches in turn with fresh messages.
type publishLane struct {
	*delivery.Lane
	sender *Sender
	// yielding says that the lane yields to the other lane.
	yielding bool
	// unanswered counts the batches without an answer of the broker.
	unanswered int
}

// New returns a Sender. It must be closed.
func New(config Config) *Sender {
	config = config.complete()
	s := &Sender{
		config: config,
		settler: delivery.Settler{
			Store: config.Store, Watcher: config.Pipeline, Metrics: config.Metrics, Logger: config.Logger,
		},
		clock: pacing.NewClock(maxYield),
	}
	s.queue = delivery.NewWorkQueue(delivery.WorkQueueConfig{
		Name: "publish", Lock: &s.mu, Workers: &s.work,
		Capacity: delivery.Capacity{Claims: config.Queue, Bytes: maxQueuedBytes},
		Parallel: config.Parallel, MaxStragglers: config.Batch, InTurn: true,
		Pipeline: config.Pipeline, State: halfmsg.Sendable, Logger: config.Logger,
	})
	s.fresh, s.backlog = publishLane{sender: s}, publishLane{sender: s, yielding: true}
	s.fresh.Lane = s.queue.NewLane(&s.fresh, config.Parallel, 0)
	s.backlog.Lane = s.queue.NewLane(&s.backlog, config.Parallel, 0)
	s.calls, s.cancel = context.WithCancel(context.Background())
	return s
}

// Pass claims due messages, as many as there is room for and at most a batch, and starts to publish them. Pass does not
// wait for the broker. While the broker takes no messages nothing is claimed. more says that the store may have more
// messages, and that there is room for them. The error is the store's; messages claimed in spite of the error are under
// way.
func (s *Sender) Pass(ctx context.Context) (more bool, err error) {
	limit := s.free()
	if limit == 0 {
		return false, nil
	}
	// Counted from before the call, so that the lease never seems longer than it is.
	until := time.Now().Add(s.config.Lease)
	claims, err := s.config.Store.ClaimSendable(ctx, limit, s.config.Lease)
	s.handBack(s.admit(delivery.BacklogWithLease(claims, until), false))
	if err != nil {
		return false, fmt.Errorf("claim sendable messages: %w", err)
	}
	return len(claims) >= limit && s.free() > 0, nil
}

// Offer takes messages that were just made SENDABLE and whose leases end at until, and starts to publish them. Messages
// without room are handed back to the store, and so are all messages while the broker takes none; only then Offer waits
// for the store.
func (s *Sender) Offer(claims []halfmsg.Claim, until time.Time) {
	held := delivery.WithLease(claims, until)
	if s.config.Publisher.Ready() != nil {
		s.postpone(held)
		return
	}
	s.handBack(s.admit(held, true))
}

// Waiting is how many messages wait in memory for the broker.
func (s *Sender) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Waiting()
}

// Close hands back the waiting messages and lets the batches under way end. When ctx ends first, messages that have not
// left yet are not published any more, the rest waits for the end of its leases, and the context's error is returned.
// From now on Offer hands everything back. Close may be called repeatedly.
func (s *Sender) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	waiting := s.queue.Close()
	s.mu.Unlock()
	defer s.cancel()

	s.work.Go(func() { s.handBack(waiting) })
	if err := s.work.Wait(ctx); err != nil {
		return fmt.Errorf("messages are still being published: %w", err)
	}
	return nil
}

// free is how many messages a pass may claim: none while the broker takes none, nor while closing. A pass that finds no
// room is repeated when there is room.
func (s *Sender) free() int {
	away := s.config.Publisher.Ready() != nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if away || s.closing {
		return 0
	}
	free := min(s.queue.FreeHalf(), s.config.Batch)
	s.queue.WantPass(free == 0)
	return free
}

// admit queues messages and returns the messages without room. Messages that a pass has claimed are always taken unless
// the sender is closing: the room for them was counted, and an Offer in between may overfill the queue by a batch.
func (s *Sender) admit(held []delivery.Leased, offered bool) (rest []delivery.Leased) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return held
	}
	for i := range held {
		h := &held[i]
		switch {
		case offered && !s.fits(h):
			s.queue.WantPass(true)
			rest = append(rest, *h)
		case h.Backlog:
			s.clock.Backlog()
			s.backlog.Push(h)
		default:
			s.clock.Fresh()
			s.fresh.Push(h)
		}
	}
	return rest
}

// fits says whether there is room for a message. The backlog leaves half of the room to fresh messages, which would
// have to wait in the store behind it otherwise. s.mu is held.
func (s *Sender) fits(h *delivery.Leased) bool {
	if h.Backlog {
		return s.queue.FreeHalf() > 0
	}
	return s.queue.Free() > 0
}

// yields says whether the lane yields to fresh messages now.
func (l *publishLane) yields() bool { return l.yielding && l.sender.clock.Yields() }

// Permit implements delivery.Handler.
func (l *publishLane) Permit(time.Time) delivery.Permit {
	if l.yields() && (l.unanswered > 0 || l.Running() > 1) {
		return delivery.Wait
	}
	return delivery.Proceed
}

// Begin implements delivery.Handler.
func (l *publishLane) Begin(delivery.Permit) (size int) {
	l.unanswered++
	if l.yields() {
		return max(1, l.sender.config.Batch/10)
	}
	return l.sender.config.Batch
}

// Work implements delivery.Handler.
func (l *publishLane) Work(b *delivery.Batch) {
	(&publication{sender: l.sender, lane: l, batch: b}).run()
}

// End implements delivery.Handler. Another pass is worth its call when most of the room is free.
func (l *publishLane) End(*delivery.Batch) (room bool) {
	queue := l.sender.queue
	return queue.Waiting() <= l.sender.config.Queue/4 && queue.FreeHalf() > 0
}
