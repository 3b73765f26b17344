package confirmloop

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/lifecycle"
)

// acknowledgedPass is how many messages one pass claims at most. They have no bodies any more.
const acknowledgedPass = 1000

// overflowPause is how long a message waits in the store that had no room here: its target is busy with those before
// it.
const overflowPause = time.Second

// forgetter takes ACKNOWLEDGED messages to their end: it has their producers delete the markers, each target's one
// batch after another, and stores what came of it. Unlike the litter, what waits here is kept in the store as well, so
// it outlives this process.
type forgetter struct {
	config Config
	keeper *delivery.Settler
	delete func(target halfmsg.Target, ids []string) error
	calls  context.Context
	// work counts the targets that are being worked on.
	work lifecycle.Group

	mu      sync.Mutex
	targets map[halfmsg.Target]*shelf
	waiting int
	closing bool
}

// shelf is what waits for one target.
type shelf struct {
	queue   []delivery.Leased
	working bool
	deletes breaker
	usedAt  time.Time
}

// OfferAcknowledged takes messages that have just become ACKNOWLEDGED and whose leases end at until, and has their
// markers deleted at once. What there is no room for is handed back to the store, and so is all after Close; only then
// it waits for the store.
func (c *Confirmer) OfferAcknowledged(claims []halfmsg.Claim, until time.Time) {
	c.forgetter.handBack(c.forgetter.admit(delivery.WithLease(claims, until)))
}

// PassAcknowledged claims ACKNOWLEDGED messages that are due, because an owner died or a deletion failed, and sets them
// going; it waits for no producer. more says that there was more to claim and that there is room for it.
func (c *Confirmer) PassAcknowledged(ctx context.Context) (more bool, err error) {
	f := c.forgetter
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

func newForgetter(c *Confirmer) *forgetter {
	return &forgetter{
		config: c.config, keeper: &c.keeper, delete: c.deleteBusiness, calls: c.calls, targets: map[halfmsg.Target]*shelf{},
	}
}

// free is how many messages a pass may claim. Targets that are idle and have nothing to remember are dropped.
func (f *forgetter) free() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return 0
	}
	for target, s := range f.targets {
		remembers := s.deletes.failures > 0 && time.Since(s.usedAt) < forgotten
		if !s.working && !remembers {
			delete(f.targets, target)
		}
	}
	return min(acknowledgedPass, max(0, f.config.DeleteBacklog-f.waiting))
}

// admit puts messages on the shelves of their targets and returns those that there is no room for: as in the litter,
// one target has no more than a quarter of it.
func (f *forgetter) admit(held []delivery.Leased) (rest []delivery.Leased) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range held {
		target := halfmsg.Target{Producer: h.Producer, Address: h.CallbackTarget}
		s := f.shelf(target)
		if f.closing || f.waiting >= f.config.DeleteBacklog || len(s.queue) >= max(1, f.config.DeleteBacklog/4) {
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

// shelf returns the shelf of a target, which need not have been there. f.mu is held.
func (f *forgetter) shelf(target halfmsg.Target) *shelf {
	s := f.targets[target]
	if s == nil {
		s = &shelf{deletes: breaker{limit: f.config.BreakerFailures, pause: f.config.BreakerPause}}
		f.targets[target] = s
	}
	s.usedAt = time.Now()
	return s
}

// run deletes a target's markers until none waits.
func (f *forgetter) run(target halfmsg.Target, s *shelf) {
	for held, wait := f.take(s); len(held) > 0; held, wait = f.take(s) {
		if failure := lifecycle.Recovered(func() { f.forget(target, s, held, wait) }); failure != nil {
			f.config.Logger.Error("a batch of deletions broke off; it is done again when its leases end",
				"producer", target.Producer, "messages", len(held), "error", failure, "stack", string(failure.Stack))
		}
	}
}

// take takes the next batch from a shelf, with how long it is to be put off when its target is left alone. It ends the
// work when there is none.
func (f *forgetter) take(s *shelf) (held []delivery.Leased, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(len(s.queue), f.config.Batch)
	held = slices.Clone(s.queue[:n])
	s.queue = s.queue[n:]
	f.waiting -= n
	switch now := time.Now(); s.deletes.standing(now) {
	case open:
		wait = s.deletes.wait(now)
	case due:
		s.deletes.probe()
	default:
	}
	if n == 0 {
		s.queue, s.working = nil, false
		s.deletes.brokeOff()
	}
	return held, wait
}

// forget is the way of a batch: have the markers deleted, store what came of it.
func (f *forgetter) forget(target halfmsg.Target, s *shelf, held []delivery.Leased, wait time.Duration) {
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
		words[i] = f.word(h, err, wait)
	}
	f.keeper.Settle(f.calls, words, f.stored)
}

// reached tells a target's breaker how a call fared, and says how long the target is left alone.
func (f *forgetter) reached(s *shelf, err error) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		s.deletes.succeed()
		return 0
	}
	now := time.Now()
	s.deletes.fail(now)
	return s.deletes.wait(now)
}

// word is what a call means for a message. One that failed uses up a try; what is left after the last one is only
// litter, and the producer's own to clean up.
func (f *forgetter) word(h delivery.Leased, err error, wait time.Duration) delivery.Outcome {
	w := delivery.Outcome{Leased: h, Cause: delivery.CauseOf(err)}
	switch {
	case err == nil:
		w.Event = halfmsg.EventMarkerDeleted
	case f.calls.Err() != nil:
		w.Event, w.Cause = halfmsg.EventReleased, ""
	case h.DeleteAttempts+1 >= f.config.DeleteTries:
		w.Event = halfmsg.EventMarkerLeft
	default:
		w.Event, w.After = halfmsg.EventMarkerKept, max(wait, litterPause.Delay(h.DeleteAttempts))
	}
	return w
}

// stored counts the markers that are left to their producers.
func (f *forgetter) stored(words []delivery.Outcome, results []halfmsg.Result) {
	left := map[string]int{}
	for i := range words {
		if words[i].Event == halfmsg.EventMarkerLeft && results[i].Err == nil {
			left[words[i].Producer]++
		}
	}
	for producer, n := range left {
		f.config.Metrics.Littered(producer, n)
	}
}

// handBack gives messages back for which there is no room here; at once when nothing is taken any more.
func (f *forgetter) handBack(held []delivery.Leased) {
	after := overflowPause
	if f.closed() {
		after = 0
	}
	f.release(held, after)
}

// release gives messages back to the store. Callers wait for it and the leases end by themselves, so it is not tried
// for long.
func (f *forgetter) release(held []delivery.Leased, after time.Duration) {
	words := make([]delivery.Outcome, len(held))
	for i, h := range held {
		words[i] = delivery.Outcome{Leased: h, Event: halfmsg.EventReleased, After: after}
	}
	ctx, cancel := context.WithTimeout(f.calls, handBackPatience)
	defer cancel()
	f.keeper.Settle(ctx, words, ignore)
}

// pending is how many messages wait here.
func (f *forgetter) pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}

func (f *forgetter) closed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closing
}

// close lets the calls under way end and hands back what waits.
func (f *forgetter) close(ctx context.Context) error {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	return f.work.Wait(ctx)
}
