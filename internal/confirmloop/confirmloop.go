// Package confirmloop finds out what became of local transactions: it claims silent messages, asks their producers,
// stores the verdicts and deletes the markers.
//
// There are two ways in, and one way through. Pass, the safety net, claims what has been silent for too long; Offer,
// the fast path, takes what a Submit has just claimed. Either puts the messages into lanes, one for each target of a
// producer and more while it fails calls (quarantine.go), and from there a batch goes: Confirm, store the verdicts,
// DeleteBusiness, on to the send side (batch.go). Where markers are deleted after the broker's acknowledgement, a
// second pair of ways is open for that: PassAcknowledged and OfferAcknowledged (acknowledged.go).
//
// Each producer has its own bounded queue, its own few calls under way and a circuit breaker for each target, so one
// that hangs or is down costs the others nothing.
package confirmloop

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Confirmer is the confirm side of one instance. Its methods may be called concurrently.
type Confirmer struct {
	config  Config
	settler delivery.Settler
	markers *markerDeleter
	// ackedMarkers minds the messages whose markers are deleted after the acknowledgement.
	ackedMarkers *ackedMarkerDeleter
	// calls is the context of everything under way; cancel ends it when Close cannot wait any longer.
	calls  context.Context
	cancel context.CancelFunc
	// work counts the batches under way.
	work lifecycle.Group

	mu        sync.Mutex
	producers map[string]*producer
	// waiting counts the messages in all lanes.
	waiting int
	closing bool
}

// New returns a Confirmer. It must be closed.
func New(config Config) *Confirmer {
	config = config.complete()
	c := &Confirmer{
		config: config,
		settler: delivery.Settler{
			Store: config.Store, Watcher: config.Pipeline, Metrics: config.Metrics, Logger: config.Logger,
		},
		producers: map[string]*producer{},
	}
	c.calls, c.cancel = context.WithCancel(context.Background())
	c.markers = newMarkerDeleter(config, c.deleteBusiness)
	c.ackedMarkers = newAckedMarkerDeleter(c)
	return c
}

// Pass claims what is due, of each producer one batch or as much as there is room for, and sets it going; it waits for
// no producer. more says that some producer may have more to give and has room for it. The error is the store's; what
// was claimed all the same is under way.
func (c *Confirmer) Pass(ctx context.Context) (more bool, err error) {
	names, err := c.config.Store.PendingProducers(ctx)
	if err != nil {
		return false, fmt.Errorf("ask which producers have pending messages: %w", err)
	}
	quota := c.quota(names)
	if len(quota) == 0 {
		return false, nil
	}
	// Counted from before the call, so that the lease never seems longer than it is.
	until := time.Now().Add(c.config.Lease)
	claims, err := c.config.Store.ClaimPending(ctx, quota, c.config.Lease)
	c.handBack(c.admit(delivery.BacklogWithLease(claims, until), false))
	if err != nil {
		return false, fmt.Errorf("claim pending messages: %w", err)
	}
	return c.wantsMore(claims, quota), nil
}

// Offer takes messages that a Submit has just claimed and whose leases end at until, and sets them going at once. Those
// that are SENDABLE come from trusted Submits: nobody is asked about them. What there is no room for is handed back to
// the store, where the next Pass, or the send loop, finds it; only then Offer waits for the store.
func (c *Confirmer) Offer(claims []halfmsg.Claim, until time.Time) {
	c.tellCommitted(claims)
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

// tellCommitted tells of messages whose verdict was stored with their Submit.
func (c *Confirmer) tellCommitted(claims []halfmsg.Claim) {
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

// deleteLater deletes the markers of committed messages in the background, where they are deleted before publishing:
// these messages are published by whoever claims them next.
func (c *Confirmer) deleteLater(committed []halfmsg.Claim) {
	if c.config.DeleteWhen == BeforePublish {
		c.deleteMarkers(committed)
	}
}

// DeleteLeftMarkers deletes the markers that may be left of acknowledged messages although they were to be deleted
// before publishing: a coordinator may have ended between the verdict and the deletion. A message whose lease had to
// end has a copy counted; a delayed message shows no trace of it. Deleting a marker twice does no harm.
// DeleteLeftMarkers does not wait for the producers, except after Close, when each deletion is tried once before it
// returns.
func (c *Confirmer) DeleteLeftMarkers(acknowledged []halfmsg.Claim) {
	var left []halfmsg.Claim
	for i := range acknowledged {
		if acknowledged[i].Copies > 0 || acknowledged[i].Delay > 0 {
			left = append(left, acknowledged[i])
		}
	}
	c.deleteMarkers(left)
}

// deleteMarkers deletes the markers of messages whose fate is stored, in the background.
func (c *Confirmer) deleteMarkers(claims []halfmsg.Claim) {
	byTarget := map[halfmsg.Target][]string{}
	for i := range claims {
		target := halfmsg.Target{Producer: claims[i].Producer, Address: claims[i].CallbackTarget}
		byTarget[target] = append(byTarget[target], claims[i].ID)
	}
	for target, ids := range byTarget {
		c.markers.add(target, ids, 0)
	}
}

// Waiting is how many messages wait in memory for their producers.
func (c *Confirmer) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}

// Markers is how many markers wait in memory to be deleted.
func (c *Confirmer) Markers() int { return c.markers.pending() + c.ackedMarkers.pending() }

// Close hands back what waits, lets the calls under way end and go through to the send side, and tries the markers that
// still wait once more. When ctx ends first, the calls are broken off and their messages are left to the end of their
// leases; then the context's error is returned. Offer hands everything back from now on. It may be called repeatedly.
func (c *Confirmer) Close(ctx context.Context) (err error) {
	// Only then: the send side, which closes later, may still have markers to be deleted.
	defer func() {
		if err != nil {
			c.cancel()
		}
	}()
	c.mu.Lock()
	c.closing = true
	for _, p := range c.producers {
		c.dispatch(p)
	}
	c.mu.Unlock()
	if err := c.work.Wait(ctx); err != nil {
		c.markers.close() // or it would go on trying when nobody minds it any more
		return fmt.Errorf("confirm calls are still under way: %w", err)
	}
	c.markers.close()
	if err := c.markers.work.Wait(ctx); err != nil {
		return fmt.Errorf("markers are still being deleted: %w", err)
	}
	if err := c.ackedMarkers.close(ctx); err != nil {
		return fmt.Errorf("markers of acknowledged messages are still being deleted: %w", err)
	}
	return nil
}

// quota says how many messages to claim of each producer; none of it while closing.
func (c *Confirmer) quota(names []string) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.producers {
		c.tidy(p)
	}
	if c.closing || len(names) == 0 {
		return nil
	}
	share := max(0, c.config.limits.queue-c.waiting) / len(names)
	quota := map[string]int{}
	for _, name := range names {
		p, known := c.producers[name]
		if !known {
			p = &producer{room: delivery.Capacity{Claims: c.config.QueuePerProducer, Bytes: c.config.limits.bytesPerProducer}}
		}
		// However full the house is, one batch of each producer may wait: the others' backlog is not its fault. And one
		// batch of each at a time is enough: the store is everybody's, and lets nobody in while it claims thousands.
		if n := min(c.free(p), max(share, c.config.Batch-p.room.Waiting()), c.config.Batch); n > 0 {
			quota[name] = n
		} else {
			p.hungry = true
		}
	}
	return quota
}

// wantsMore says whether some producer had more than its quota and has room again; those that have none yet will call.
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
			p.hungry = false
		case c.free(p) >= c.config.QueuePerProducer/2:
			more = true
		default:
			p.hungry = true
		}
	}
	return more
}

// admit puts messages into their lanes and returns those that it does not take. What a pass has claimed is always taken
// unless the house is closing: the room for it was counted, and an Offer that came in between may overfill it but once.
func (c *Confirmer) admit(held []delivery.Leased, offered bool) (rest []delivery.Leased) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return held
	}
	touched := map[*producer]struct{}{}
	for _, h := range held {
		p := c.producer(h.Producer)
		if offered && p.room.Free() == 0 {
			p.hungry = true
			rest = append(rest, h)
			continue
		}
		c.enqueue(p, h)
		touched[p] = struct{}{}
	}
	for p := range touched {
		c.dispatch(p)
	}
	return rest
}
