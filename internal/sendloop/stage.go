package sendloop

import (
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/pacing"
)

// maxYield is how long the backlog yields to fresh messages. A backlog that lasts longer is too large for that.
const maxYield = 2 * time.Second

// brokerStage is the queue of a broker, and the places of its batches.
type brokerStage struct {
	sender *Sender
	name   string
	broker Broker

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
	stage *brokerStage
	// yielding says that the lane yields to the other lane.
	yielding bool
	// unanswered counts the batches without an answer of the broker.
	unanswered int
}

func newBrokerStage(sender *Sender, name string, broker Broker) *brokerStage {
	config := &sender.config
	s := &brokerStage{sender: sender, name: name, broker: broker, clock: pacing.NewClock(maxYield)}
	s.queue = delivery.NewWorkQueue(delivery.WorkQueueConfig{
		Name: "publish", Lock: &s.mu, Workers: &sender.work,
		Capacity: delivery.Capacity{Claims: config.Queue, Bytes: maxQueuedBytes / len(config.Brokers)},
		Parallel: config.Parallel, MaxStragglers: config.Batch, InTurn: true,
		Pipeline: config.Pipeline, State: halfmsg.Sendable, Logger: config.Logger,
	})
	s.fresh, s.backlog = publishLane{stage: s}, publishLane{stage: s, yielding: true}
	s.fresh.Lane = s.queue.NewLane(&s.fresh, config.Parallel, 0)
	s.backlog.Lane = s.queue.NewLane(&s.backlog, config.Parallel, 0)
	return s
}

// offer queues fresh messages.
func (s *brokerStage) offer(held []delivery.Leased) {
	if s.broker.Publisher.Ready() != nil {
		s.postpone(held)
		return
	}
	s.sender.handBack(s.admit(held, true))
}

func (s *brokerStage) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Waiting()
}

// close takes no further message, and returns the waiting messages.
func (s *brokerStage) close() (waiting []delivery.Leased) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	return s.queue.Close()
}

// free is how many messages a pass may claim: none while the broker takes none, nor while closing. A pass that finds no
// room is repeated when there is room.
func (s *brokerStage) free() int {
	away := s.broker.Publisher.Ready() != nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if away || s.closing {
		return 0
	}
	free := min(s.queue.FreeHalf(), s.sender.config.Batch)
	s.queue.WantPass(free == 0)
	return free
}

// admit queues messages and returns the messages without room. Messages that a pass has claimed are always taken unless
// the sender is closing: the room for them was counted, and an Offer in between may overfill the queue by a batch.
func (s *brokerStage) admit(held []delivery.Leased, offered bool) (rest []delivery.Leased) {
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
func (s *brokerStage) fits(h *delivery.Leased) bool {
	if h.Backlog {
		return s.queue.FreeHalf() > 0
	}
	return s.queue.Free() > 0
}

// yields says whether the lane yields to fresh messages now.
func (l *publishLane) yields() bool { return l.yielding && l.stage.clock.Yields() }

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
		return max(1, l.stage.sender.config.Batch/10)
	}
	return l.stage.sender.config.Batch
}

// Work implements delivery.Handler.
func (l *publishLane) Work(b *delivery.Batch) {
	(&publication{sender: l.stage.sender, stage: l.stage, lane: l, batch: b}).run()
}

// End implements delivery.Handler. Another pass is worth its call when most of the room is free.
func (l *publishLane) End(*delivery.Batch) (room bool) {
	queue := l.stage.queue
	return queue.Waiting() <= l.stage.sender.config.Queue/4 && queue.FreeHalf() > 0
}
