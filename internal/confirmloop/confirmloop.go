// Package confirmloop finds out whether local transactions were committed: it claims silent messages, asks their
// producers, stores the verdicts and deletes the markers.
//
// Messages come in two ways. Pass, the safety net, claims messages that have been silent for too long; Offer, the fast
// path, takes messages that a Submit has just claimed. Both fill the queue of the producer. Workers take batches from
// the queue: Confirm, store the verdicts, DeleteBusiness, hand over to the send stage (confirm.go). Where markers are
// deleted after the broker's acknowledgement, PassAcknowledged and OfferAcknowledged take the messages in the same two
// ways (ackedmarkers.go).
//
// Each producer has a bounded queue, a few calls under way and a circuit breaker for each target, so a producer that
// hangs or is down costs the others nothing. The queue has a lane for each target, and more while the producer fails
// calls (quarantine.go).
package confirmloop

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
)

// Confirmer is the confirm stage of an instance. The methods may be called concurrently.
type Confirmer struct {
	config  Config
	settler delivery.Settler
	// failures gathers the log lines about messages.
	failures *loglimit.Gatherer
	markers  *markerDeleter
	// calls is the context of everything under way; cancel ends it when Close cannot wait any longer.
	calls  context.Context
	cancel context.CancelFunc
	// work counts the batches under way.
	work lifecycle.Group

	mu        sync.Mutex
	producers map[string]*producer
	// total counts the messages that wait for all producers.
	total   delivery.Capacity
	closing bool
}

// New returns a Confirmer. It must be closed.
func New(config Config) *Confirmer {
	config = config.complete()
	failures := loglimit.NewGatherer(config.Logger)
	c := &Confirmer{
		config: config,
		settler: delivery.Settler{
			Store: config.Store, Watcher: config.Pipeline, Metrics: config.Metrics, Logger: config.Logger,
			Failures: failures,
		},
		failures:  failures,
		producers: map[string]*producer{},
		total:     delivery.Capacity{Claims: config.limits.queue},
	}
	c.settler.Work = &c.work
	c.calls, c.cancel = context.WithCancel(context.Background())
	c.markers = newMarkerDeleter(c.calls, config, c.settler)
	return c
}

// Pass claims due messages, of each producer a batch or as many as there is room for, and starts to confirm them. Pass
// leaves out the targets whose circuits are open, so that their messages do not stand before those of other targets,
// and waits for no producer. more says that some producer may have more messages in the store, and has room for them.
// The error is the store's; messages claimed in spite of the error are under way.
func (c *Confirmer) Pass(ctx context.Context) (more bool, err error) {
	names, err := c.config.Store.PendingProducers(ctx)
	if err != nil {
		return false, fmt.Errorf("ask which producers have pending messages: %w", err)
	}
	quota := c.quota(names)
	if len(quota) == 0 {
		c.tidy(names)
		return false, nil
	}
	// Counted from before the call, so that the lease never seems longer than it is.
	until := time.Now().Add(c.config.Lease)
	claims, err := c.config.Store.ClaimPending(ctx, quota, c.config.Lease, c.leftOut()...)
	c.handBack(c.admit(delivery.BacklogWithLease(claims, until), false))
	if err != nil {
		return false, fmt.Errorf("claim pending messages: %w", err)
	}
	c.tidy(names)
	return c.wantsMore(claims, quota), nil
}

// Offer takes messages that a Submit has just claimed and whose leases end at until, and starts to confirm them.
// SENDABLE messages come from trusted Submits: no producer is asked about them. Messages without room are handed back
// to the store, where the next Pass, or the send loop, finds them; only then Offer waits for the store.
func (c *Confirmer) Offer(claims []halfmsg.Claim, until time.Time) {
	c.reportCommitted(claims)
	held := make([]delivery.Leased, 0, len(claims))
	var unclaimed []halfmsg.Claim
	for _, claim := range claims {
		if claim.Token == "" {
			unclaimed = append(unclaimed, claim)
			continue
		}
		held = append(held, delivery.Leased{Claim: claim, Until: until})
	}
	c.deleteLater(unclaimed)
	c.handBack(c.admit(held, true))
}

// reportCommitted reports messages whose verdict was stored with their Submit.
func (c *Confirmer) reportCommitted(claims []halfmsg.Claim) {
	var moves []halfmsg.Moved
	for i := range claims {
		if claim := &claims[i]; claim.State == halfmsg.Sendable {
			c.config.Metrics.Committed(claim)
			moves = append(moves, halfmsg.Moved{Name: claim.Name, State: claim.State})
		}
	}
	if len(moves) == 0 {
		return
	}
	c.config.Metrics.Settled(halfmsg.EventCommitted, delivery.Stored, len(moves))
	c.config.Pipeline.Moved(moves)
}

// Waiting is how many messages wait in memory for their producers.
func (c *Confirmer) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total.Waiting()
}

// Markers is how many markers wait in memory to be deleted.
func (c *Confirmer) Markers() int { return c.markers.pending() }

// Close hands back the waiting messages, lets the calls under way end and go through to the send stage, and tries the
// waiting markers once more. When ctx ends first, the calls are cancelled, their messages wait for the end of their
// leases, and the context's error is returned. From now on Offer hands everything back. Close may be called repeatedly.
func (c *Confirmer) Close(ctx context.Context) (err error) {
	defer c.failures.Flush()
	// Not without an error: the send stage, which closes later, may still have markers to be deleted.
	defer func() {
		if err != nil {
			c.cancel()
		}
	}()
	c.mu.Lock()
	c.closing = true
	for _, p := range c.producers {
		waiting := p.queue.Close()
		c.work.Go(func() { c.handBack(waiting) })
	}
	c.mu.Unlock()
	err = c.work.Wait(ctx)
	c.markers.close() // after an error too, or the deleter would go on trying
	if err != nil {
		return fmt.Errorf("confirm calls are still under way: %w", err)
	}
	if err := c.markers.work.Wait(ctx); err != nil {
		return fmt.Errorf("markers are still being deleted: %w", err)
	}
	return nil
}

// quota says how many messages to claim of each producer; nothing while closing.
func (c *Confirmer) quota(names []string) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing || len(names) == 0 {
		return nil
	}
	share := max(0, c.config.limits.queue-c.total.Waiting()) / len(names)
	quota := map[string]int{}
	for _, name := range names {
		p, known := c.producers[name]
		if !known {
			p = c.newProducer(name)
		}
		// One batch of each producer may wait, however many messages the others have waiting. And one batch of each at a
		// time is enough: Redis serves no other call while it claims thousands.
		if n := min(p.queue.Free(), max(share, c.config.Batch-p.queue.Waiting()), c.config.Batch); n > 0 {
			quota[name] = n
		} else {
			p.queue.WantPass(true)
		}
	}
	return quota
}

// wantsMore says whether some producer had more than its quota and has room again. A producer without room wants
// another pass later.
func (c *Confirmer) wantsMore(claims []halfmsg.Claim, quota map[string]int) (more bool) {
	claimed := map[string]int{}
	for i := range claims {
		claimed[claims[i].Producer]++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, n := range claimed {
		p := c.producers[name]
		switch {
		case p == nil:
			more = more || n >= quota[name]
		case n < quota[name]:
			p.queue.WantPass(false)
		case p.roomForPass():
			more = true
		default:
			p.queue.WantPass(true)
		}
	}
	return more
}

// admit puts messages into the queues of their producers, and returns the messages without room. Messages that a pass
// has claimed are always taken unless the stage is closing: the room for them was counted, and an Offer that came in
// between may overfill a queue only once.
func (c *Confirmer) admit(held []delivery.Leased, offered bool) (rest []delivery.Leased) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return held
	}
	for i := range held {
		h := &held[i]
		p := c.producer(h.Producer)
		if offered && p.queue.Free() == 0 {
			p.queue.WantPass(true)
			rest = append(rest, *h)
			continue
		}
		p.laneFor(h).push(h)
	}
	return rest
}
