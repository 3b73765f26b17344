// Package sendloop brings committed messages to the broker: it claims due SENDABLE messages, publishes them and stores
// what the broker said.
//
// As on the confirm side there are two ways in and one way through: Pass claims what is due, Offer takes what the
// confirm side has just made SENDABLE; both fill one bounded queue (queue.go), from which a few batches at a time are
// published (batch.go).
package sendloop

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Sender is the send side of one instance. Its methods may be called concurrently.
type Sender struct {
	config  Config
	settler delivery.Settler
	// calls is the context of everything under way; cancel ends it when Close cannot wait any longer.
	calls  context.Context
	cancel context.CancelFunc
	// work counts the batches under way.
	work lifecycle.Group

	mu    sync.Mutex
	queue queue
	room  delivery.Capacity
	// batches counts the batches that take a place, stragglers the messages not settled yet of those that take none any
	// more.
	batches, stragglers int
	// taking says that a batch is about to be taken.
	taking bool
	// hungry says that the store may hold more than the last pass took.
	hungry  bool
	closing bool
}

// New returns a Sender. It must be closed.
func New(config Config) *Sender {
	config = config.complete()
	s := &Sender{
		config: config,
		settler: delivery.Settler{
			Store: config.Store, Watcher: config.Pipeline, Metrics: config.Metrics, Logger: config.Logger,
		},
		queue: queue{share: max(1, config.Batch/10)},
		room:  delivery.Capacity{Claims: config.Queue, Bytes: maxQueuedBytes},
	}
	s.calls, s.cancel = context.WithCancel(context.Background())
	return s
}

// Pass claims what is due, as much as there is room for and at most one batch, and sets it going; it does not wait for
// the broker. While the broker takes no messages nothing is claimed. more says that there was more to claim and that
// there is room for it. The error is the store's; what was claimed all the same is under way.
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

// Offer takes messages that were just made SENDABLE and whose leases end at until, and sets them going. What there is
// no room for is handed back to the store, and so is all while the broker takes no messages; only then Offer waits for
// the store.
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
	return s.room.Waiting()
}

// Close hands back what waits and lets the batches under way end. When ctx ends first, what has not left yet is not
// published any more, the rest is left to the end of its leases, and the context's error is returned. Offer hands
// everything back from now on. It may be called repeatedly.
func (s *Sender) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	waiting := s.queue.empty()
	s.room.Remove(waiting...)
	s.mu.Unlock()
	defer s.cancel()

	s.work.Go(func() { s.handBack(waiting) })
	if err := s.work.Wait(ctx); err != nil {
		return fmt.Errorf("messages are still being published: %w", err)
	}
	return nil
}

// free is how many messages a pass may claim: none while the broker takes none, nor while closing. A pass that finds no
// room is repeated when there is.
func (s *Sender) free() int {
	away := s.config.Publisher.Ready() != nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if away || s.closing {
		return 0
	}
	free := min(s.room.FreeHalf(), s.config.Batch)
	s.hungry = free == 0
	return free
}

// admit queues messages and returns those that it does not take. What a pass has claimed is always taken unless the
// house is closing: the room for it was counted, and an Offer that came in between may overfill it by one batch.
func (s *Sender) admit(held []delivery.Leased, offered bool) (rest []delivery.Leased) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return held
	}
	if offered {
		held, rest = s.fitting(held)
	}
	if len(rest) > 0 {
		s.hungry = true
	}
	s.queue.add(held)
	s.room.Add(held...)
	s.dispatch()
	return rest
}

// fitting tells the messages that there is room for from the rest. The backlog leaves half of the room to the others,
// or those would have to wait in the store behind it. s.mu is held.
func (s *Sender) fitting(held []delivery.Leased) (in, rest []delivery.Leased) {
	all, half := s.room.Free(), s.room.FreeHalf()
	for _, h := range held {
		if free := all - len(in); free > 0 && (!h.Backlog || half > len(in)) {
			in = append(in, h)
		} else {
			rest = append(rest, h)
		}
	}
	return in, rest
}

// dispatch has a batch taken when messages wait and more may be under way: Parallel batches, and no more stragglers
// than would fill another. s.mu is held.
func (s *Sender) dispatch() {
	if s.taking || s.batches == s.config.Parallel || s.stragglers > s.config.Batch || s.room.Waiting() == 0 {
		return
	}
	s.taking = true
	s.work.Go(func() {
		held := s.take()
		if len(held) == 0 {
			return
		}
		f := &flight{sender: s, backlog: held[0].Backlog, stands: true}
		if failure := lifecycle.Recovered(func() { f.send(held) }); failure != nil {
			s.brokeOff(len(held), failure)
		}
		s.hear(f)
		s.settled(f, len(held))
	})
}

func (s *Sender) brokeOff(messages int, failure *lifecycle.PanicError) {
	s.config.Logger.Error("a batch of publishings broke off; its leases will end and it will be done again",
		"messages", messages, "error", failure, "stack", string(failure.Stack))
}

// take takes the next batch and has the one after it taken. It lets those run first that are ready to: on a busy
// machine they bring messages for the same batch, and a batch costs little more than a message.
func (s *Sender) take() []delivery.Leased {
	runtime.Gosched()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taking = false
	held := s.queue.take(s.config.Batch)
	if len(held) > 0 {
		s.room.Remove(held...)
		s.batches++
		s.dispatch()
	}
	return held
}

// hear lets the next batch follow one that the broker has answered.
func (s *Sender) hear(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !f.heard {
		f.heard = true
		s.queue.sent(f.backlog)
		s.dispatch()
	}
}

// settled counts messages of a batch as settled. The first time the next batch gets its place; what is left of it then
// are stragglers.
func (s *Sender) settled(f *flight, messages int) {
	s.mu.Lock()
	messages = min(messages, f.left)
	if messages == 0 && !f.stands {
		s.mu.Unlock() // the next batch may be on its way already, and a pass would be asked for too early
		return
	}
	f.left -= messages
	if f.stands {
		f.stands = false
		s.stragglers += f.left
		s.batches--
		s.queue.done(f.backlog)
	} else {
		s.stragglers -= messages
	}
	s.dispatch()
	wake := s.hungry && !s.closing && s.room.Waiting() <= s.config.Queue/4 && s.room.FreeHalf() > 0
	if wake {
		s.hungry = false
	}
	s.mu.Unlock()
	if wake {
		s.config.Pipeline.Due(halfmsg.Sendable)
	}
}
