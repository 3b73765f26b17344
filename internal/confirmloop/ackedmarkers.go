package confirmloop

import (
	"context"
	"fmt"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// acknowledgedPass is how many messages one pass claims at most. They have no bodies any more.
const acknowledgedPass = 1000

// overflowPause is how long a message without room here waits in the store: its target is busy with other messages.
const overflowPause = time.Second

// OfferAcknowledged takes messages that have just become ACKNOWLEDGED and whose leases end at until, and starts to
// delete their markers; then the messages are DONE. Messages without room are handed back to the store, and so are all
// messages after Close; only then OfferAcknowledged waits for the store. A restart loses nothing, since the store keeps
// the messages.
func (c *Confirmer) OfferAcknowledged(claims []halfmsg.Claim, until time.Time) {
	c.markers.handBack(c.markers.admit(delivery.WithLease(claims, until)))
}

// PassAcknowledged claims ACKNOWLEDGED messages that are due, because an instance ended or a deletion failed, and
// starts to delete their markers; it waits for no producer. more says that there was more to claim and that there is
// room for more.
func (c *Confirmer) PassAcknowledged(ctx context.Context) (more bool, err error) {
	d := c.markers
	limit := d.free()
	if limit == 0 {
		return false, nil
	}
	// Counted from before the call, so that the lease never seems longer than it is.
	until := time.Now().Add(c.config.Lease)
	claims, err := c.config.Store.ClaimAcknowledged(ctx, limit, c.config.Lease, d.leftOut()...)
	rest := d.admit(delivery.BacklogWithLease(claims, until))
	d.handBack(rest)
	if err != nil {
		return false, fmt.Errorf("claim acknowledged messages: %w", err)
	}
	return len(claims) >= limit && len(rest) == 0 && d.free() > 0, nil
}

// free is how many ACKNOWLEDGED messages a pass may claim.
func (d *markerDeleter) free() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0
	}
	for _, q := range d.queues {
		q.tidy()
	}
	return min(acknowledgedPass, d.acked.Free())
}

// leftOut are the targets that take no deletions of acknowledged messages now.
func (d *markerDeleter) leftOut() (targets []halfmsg.LeftOut) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.queues {
		if q.acked && q.deletes.rests(time.Now()) {
			targets = append(targets, halfmsg.LeftOut{Target: q.Target, Wait: q.deletes.pauseLeft(time.Now())})
		}
	}
	return targets
}

// admit queues ACKNOWLEDGED messages by target, and returns the messages without room.
func (d *markerDeleter) admit(held []delivery.Leased) (rest []delivery.Leased) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range held {
		target := targetOf(&h.Claim)
		q := d.queueOf(markerKey{Target: target, acked: true})
		if d.closed || d.acked.Free() == 0 || q.queue.Free() == 0 {
			rest = append(rest, h)
			continue
		}
		// The content is not needed any more. The ordering key says in which shard the message is.
		h.Message = halfmsg.Message{
			Name: h.Name, OrderingKey: h.OrderingKey, CallbackTarget: h.CallbackTarget, MarkerStore: h.MarkerStore,
		}
		q.lane.Push(&h)
	}
	return rest
}

// deleteAcked deletes the markers of a batch of ACKNOWLEDGED messages, and stores the outcomes.
func (q *markerQueue) deleteAcked(b *delivery.Batch) {
	d := q.deleter
	if b.Permit == delivery.Postpone {
		d.release(b.Messages, q.pauseLeft())
		return
	}
	lasting, ending := delivery.Lasting(b.Messages, d.config.Margin)
	d.release(ending, 0)
	if len(lasting) == 0 {
		return
	}
	err := d.deleteBusiness(q.Target, idsOf(lasting))
	outcomes := make([]delivery.Outcome, len(lasting))
	wait := q.record(err)
	for i, h := range lasting {
		outcomes[i] = d.outcomeOf(h, err, wait)
	}
	d.settler.Settle(d.calls, outcomes, d.countLeft)
}

// pauseLeft is how long calls to the target are paused; 0 after close, for other instances.
func (q *markerQueue) pauseLeft() time.Duration {
	q.deleter.mu.Lock()
	defer q.deleter.mu.Unlock()
	if q.deleter.closed {
		return 0
	}
	return q.deletes.pauseLeft(time.Now())
}

// record counts a call in the target's breaker, and returns how long calls to the target are paused.
func (q *markerQueue) record(err error) time.Duration {
	q.deleter.mu.Lock()
	defer q.deleter.mu.Unlock()
	if err == nil {
		q.deletes.succeed()
		return 0
	}
	now := time.Now()
	q.deletes.fail(now)
	return q.deletes.pauseLeft(now)
}

// outcomeOf is the outcome of a call for a message. A failed call uses up a try; after the last try the marker is left
// to the producer's own clean-up.
func (d *markerDeleter) outcomeOf(h delivery.Leased, err error, wait time.Duration) delivery.Outcome {
	assert.Always(h.State == halfmsg.Acknowledged, "a marker is deleted last only after the acknowledgement",
		h.Producer, h.ID)
	o := delivery.Outcome{Leased: h, Cause: delivery.CauseOf(err)}
	switch {
	case err == nil:
		o.Event = halfmsg.EventMarkerDeleted
	case d.calls.Err() != nil:
		o.Event, o.Cause = halfmsg.EventReleased, ""
	case h.DeleteAttempts+1 >= d.config.limits.deleteTries:
		o.Event = halfmsg.EventMarkerLeft
	default:
		o.Event, o.After = halfmsg.EventMarkerKept, max(wait, deletionPause.Delay(h.DeleteAttempts))
	}
	return o
}

// countLeft counts the markers that are left to their producers.
func (d *markerDeleter) countLeft(outcomes []delivery.Outcome, results []halfmsg.Result) {
	left := map[string]int{}
	for i := range outcomes {
		if outcomes[i].Event == halfmsg.EventMarkerLeft && results[i].Err == nil {
			left[outcomes[i].Producer]++
		}
	}
	for producer, n := range left {
		d.config.Metrics.MarkersLeft(producer, n)
	}
}

// handBack gives messages without room back to the store; due at once after close, for other instances.
func (d *markerDeleter) handBack(held []delivery.Leased) {
	d.mu.Lock()
	after := overflowPause
	if d.closed {
		after = 0
	}
	d.mu.Unlock()
	d.release(held, after)
}

// release gives messages back to the store. Callers wait and the leases end anyway, so the time is short.
func (d *markerDeleter) release(held []delivery.Leased, after time.Duration) {
	if len(held) == 0 {
		return
	}
	outcomes := make([]delivery.Outcome, len(held))
	for i, h := range held {
		assert.Always(h.Token != "", "the marker deleter hands back only what it holds", h.Producer, h.ID)
		outcomes[i] = delivery.Outcome{Leased: h, Event: halfmsg.EventReleased, After: after}
	}
	ctx, cancel := context.WithCancel(d.calls)
	time.AfterFunc(handBackTimeout, cancel) // later than this call may return: the rest is tried beside
	d.settler.Settle(ctx, outcomes, ignore)
}
