package confirmloop

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// acknowledgedPass is how many messages one pass claims at most. They have no bodies any more.
const acknowledgedPass = 1000

// overflowPause is how long a message waits in the store that had no room here: its target is busy with those before
// it.
const overflowPause = time.Second

// ackedMarkerDeleter takes ACKNOWLEDGED messages to DONE: it deletes their markers, one batch at a time for each
// target, and stores the result. In contrast to the markerDeleter, the store keeps what waits here, so a restart loses
// nothing.
type ackedMarkerDeleter struct {
	config  Config
	settler *delivery.Settler
	delete  func(target halfmsg.Target, ids []string) error
	calls   context.Context
	// work counts the targets that are being worked on.
	work lifecycle.Group

	mu      sync.Mutex
	targets map[halfmsg.Target]*deletionQueue
	waiting int
	closing bool
}

// deletionQueue holds the messages of one target.
type deletionQueue struct {
	queue   []delivery.Leased
	working bool
	deletes breaker
	usedAt  time.Time
}

// OfferAcknowledged takes messages that have just become ACKNOWLEDGED and whose leases end at until, and has their
// markers deleted at once. What there is no room for is handed back to the store, and so is all after Close; only then
// it waits for the store.
func (c *Confirmer) OfferAcknowledged(claims []halfmsg.Claim, until time.Time) {
	c.ackedMarkers.handBack(c.ackedMarkers.admit(delivery.WithLease(claims, until)))
}

// PassAcknowledged claims ACKNOWLEDGED messages that are due, because an owner died or a deletion failed, and sets them
// going; it waits for no producer. more says that there was more to claim and that there is room for it.
func (c *Confirmer) PassAcknowledged(ctx context.Context) (more bool, err error) {
	f := c.ackedMarkers
	limit := f.free()
	if limit == 0 {
		return false, nil
	}
	// Counted from before the call, so that the lease never seems longer than it is.
	until := time.Now().Add(c.config.Lease)
	claims, err := c.config.Store.ClaimAcknowledged(ctx, limit, c.config.Lease)
	rest := f.admit(delivery.BacklogWithLease(claims, until))
	f.handBack(rest)
	if err != nil {
		return false, fmt.Errorf("claim acknowledged messages: %w", err)
	}
	return len(claims) >= limit && len(rest) == 0 && f.free() > 0, nil
}

func newAckedMarkerDeleter(c *Confirmer) *ackedMarkerDeleter {
	return &ackedMarkerDeleter{
		config: c.config, settler: &c.settler, delete: c.deleteBusiness, calls: c.calls, targets: map[halfmsg.Target]*deletionQueue{},
	}
}

// free is how many messages a pass may claim. Targets that are idle and have nothing to remember are dropped.
func (f *ackedMarkerDeleter) free() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return 0
	}
	for target, s := range f.targets {
		remembers := s.deletes.failures > 0 && time.Since(s.usedAt) < laneMemory
		if !s.working && !remembers {
			delete(f.targets, target)
		}
	}
	return min(acknowledgedPass, max(0, f.config.limits.deleteBacklog-f.waiting))
}

// admit queues messages by target and returns the messages without room: as in the markerDeleter, one target has at
// most a quarter of the room.
func (f *ackedMarkerDeleter) admit(held []delivery.Leased) (rest []delivery.Leased) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range held {
		target := halfmsg.Target{Producer: h.Producer, Address: h.CallbackTarget}
		s := f.queueOf(target)
		if f.closing || f.waiting >= f.config.limits.deleteBacklog || len(s.queue) >= max(1, f.config.limits.deleteBacklog/4) {
			rest = append(rest, h)
			continue
		}
		h.Message = halfmsg.Message{Name: h.Name, CallbackTarget: h.CallbackTarget} // its content is not needed any more
		s.queue = append(s.queue, h)
		f.waiting++
	}
	for target, s := range f.targets {
		if len(s.queue) > 0 && !s.working {
			s.working = true
			f.work.Go(func() { f.run(target, s) })
		}
	}
	return rest
}

// queueOf returns the queueOf of a target, which need not have been there. f.mu is held.
func (f *ackedMarkerDeleter) queueOf(target halfmsg.Target) *deletionQueue {
	s := f.targets[target]
	if s == nil {
		s = &deletionQueue{deletes: breaker{limit: f.config.limits.breakerFailures, pause: f.config.limits.breakerPause}}
		f.targets[target] = s
	}
	s.usedAt = time.Now()
	return s
}

// run deletes a target's markers until none waits.
func (f *ackedMarkerDeleter) run(target halfmsg.Target, s *deletionQueue) {
	for held, wait := f.take(s); len(held) > 0; held, wait = f.take(s) {
		if failure := lifecycle.Recovered(func() { f.deleteBatch(target, s, held, wait) }); failure != nil {
			f.config.Logger.Error("a batch of deletions broke off; it is done again when its leases end",
				"producer", target.Producer, "messages", len(held), "error", failure, "stack", string(failure.Stack))
		}
	}
}

// take takes the next batch from a queue. wait is how long the batch is to be put off while calls to the target are
// paused. An empty batch ends the work on the queue.
func (f *ackedMarkerDeleter) take(s *deletionQueue) (held []delivery.Leased, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(len(s.queue), f.config.Batch)
	held = slices.Clone(s.queue[:n])
	s.queue = s.queue[n:]
	f.waiting -= n
	switch now := time.Now(); s.deletes.state(now) {
	case open:
		wait = s.deletes.pauseLeft(now)
	case halfOpen:
		s.deletes.probe()
	default:
	}
	if n == 0 {
		s.queue, s.working = nil, false
		s.deletes.probeEnded()
	}
	return held, wait
}

// deleteBatch is the way of a batch: have the markers deleted, store what came of it.
func (f *ackedMarkerDeleter) deleteBatch(target halfmsg.Target, s *deletionQueue, held []delivery.Leased, wait time.Duration) {
	if wait > 0 || f.closed() {
		f.release(held, wait)
		return
	}
	lasting, ending := delivery.Lasting(held, f.config.Margin)
	f.release(ending, 0)
	if len(lasting) == 0 {
		return
	}
	ids := make([]string, len(lasting))
	for i, h := range lasting {
		ids[i] = h.ID
	}
	err := f.delete(target, ids)
	words := make([]delivery.Outcome, len(lasting))
	wait = f.reached(s, err)
	for i, h := range lasting {
		words[i] = f.outcomeOf(h, err, wait)
	}
	f.settler.Settle(f.calls, words, f.stored)
}

// reached counts a call in the target's breaker, and returns how long calls to the target are paused.
func (f *ackedMarkerDeleter) reached(s *deletionQueue, err error) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		s.deletes.succeed()
		return 0
	}
	now := time.Now()
	s.deletes.fail(now)
	return s.deletes.pauseLeft(now)
}

// outcomeOf is the outcome of a call for a message. A failed call uses up a try; after the last one the marker is left
// to the producer's own clean-up.
func (f *ackedMarkerDeleter) outcomeOf(h delivery.Leased, err error, wait time.Duration) delivery.Outcome {
	w := delivery.Outcome{Leased: h, Cause: delivery.CauseOf(err)}
	switch {
	case err == nil:
		w.Event = halfmsg.EventMarkerDeleted
	case f.calls.Err() != nil:
		w.Event, w.Cause = halfmsg.EventReleased, ""
	case h.DeleteAttempts+1 >= f.config.limits.deleteTries:
		w.Event = halfmsg.EventMarkerLeft
	default:
		w.Event, w.After = halfmsg.EventMarkerKept, max(wait, deletionPause.Delay(h.DeleteAttempts))
	}
	return w
}

// stored counts the markers that are left to their producers.
func (f *ackedMarkerDeleter) stored(words []delivery.Outcome, results []halfmsg.Result) {
	left := map[string]int{}
	for i := range words {
		if words[i].Event == halfmsg.EventMarkerLeft && results[i].Err == nil {
			left[words[i].Producer]++
		}
	}
	for producer, n := range left {
		f.config.Metrics.MarkersLeft(producer, n)
	}
}

// handBack gives messages back for which there is no room here; at once when nothing is taken any more.
func (f *ackedMarkerDeleter) handBack(held []delivery.Leased) {
	after := overflowPause
	if f.closed() {
		after = 0
	}
	f.release(held, after)
}

// release gives messages back to the store. Callers wait for it and the leases end by themselves, so it is not tried
// for long.
func (f *ackedMarkerDeleter) release(held []delivery.Leased, after time.Duration) {
	words := make([]delivery.Outcome, len(held))
	for i, h := range held {
		words[i] = delivery.Outcome{Leased: h, Event: halfmsg.EventReleased, After: after}
	}
	ctx, cancel := context.WithTimeout(f.calls, handBackPatience)
	defer cancel()
	f.settler.Settle(ctx, words, ignore)
}

// pending is how many messages wait here.
func (f *ackedMarkerDeleter) pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}

func (f *ackedMarkerDeleter) closed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closing
}

// close lets the calls under way end and hands back what waits.
func (f *ackedMarkerDeleter) close(ctx context.Context) error {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	return f.work.Wait(ctx)
}
