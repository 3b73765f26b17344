package confirmloop

import (
	"context"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// deletionPause is the pause after each failed deletion.
var deletionPause = backoff.Exponential(time.Second, time.Minute)

// markerDeleter deletes markers in the background, one batch at a time for each target. There are two kinds of markers:
//   - Loose markers: their messages go on without them. Loose markers wait in memory only. After a few tries, or a
//     restart, a marker is left to the producer's own clean-up.
//   - Markers of ACKNOWLEDGED messages, which this instance holds a lease on: the store keeps what waits here
//     (ackedmarkers.go).
type markerDeleter struct {
	config  Config
	settler delivery.Settler
	calls   context.Context
	// work has the workers; closing is closed when pauses end.
	work    lifecycle.Group
	closing chan struct{}

	mu     sync.Mutex
	queues map[markerKey]*markerQueue
	// loose and acked count the markers of each kind that wait for all targets.
	loose, acked delivery.Capacity
	closed       bool
}

// markerKey is a target and the kind of markers.
type markerKey struct {
	halfmsg.Target
	acked bool
}

// markerQueue has the markers of one kind and target. A marker is a message without content.
type markerQueue struct {
	markerKey
	deleter *markerDeleter
	queue   *delivery.WorkQueue
	lane    *delivery.Lane
	// failures counts the failed deletions of loose markers in a row.
	failures int
	// deletes pauses the deletions of acknowledged messages, usedAt is when a message came last.
	deletes breaker
	usedAt  time.Time
}

func newMarkerDeleter(calls context.Context, config Config, settler delivery.Settler) *markerDeleter {
	d := &markerDeleter{
		config: config, settler: settler, calls: calls, closing: make(chan struct{}), queues: map[markerKey]*markerQueue{},
		loose: delivery.Capacity{Claims: config.limits.deleteBacklog},
		acked: delivery.Capacity{Claims: config.limits.deleteBacklog},
	}
	d.settler.Work = &d.work
	return d
}

// queueOf returns the queue of a target, new or known. Each target has at most a quarter of the room.
// d.mu is held.
func (d *markerDeleter) queueOf(key markerKey) *markerQueue {
	q := d.queues[key]
	if q == nil {
		total := &d.loose
		if key.acked {
			total = &d.acked
		}
		q = &markerQueue{
			markerKey: key, deleter: d,
			queue: delivery.NewWorkQueue(delivery.WorkQueueConfig{
				Name: "delete markers", Lock: &d.mu, Workers: &d.work,
				Capacity: delivery.Capacity{Claims: max(1, d.config.limits.deleteBacklog/4)}, Total: total,
				Parallel: 1, Logger: d.config.Logger,
			}),
			deletes: breaker{limit: d.config.limits.breakerFailures, pause: d.config.limits.breakerPause},
		}
		q.lane = q.queue.NewLane(q, 1, 0)
		d.queues[key] = q
	}
	q.usedAt = time.Now()
	return q
}

// pending is how many markers wait here.
func (d *markerDeleter) pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loose.Waiting() + d.acked.Waiting()
}

// add takes loose markers whose deletion has failed so many times. It returns at once, unless the deleter is closed:
// then each deletion is tried once before add returns.
func (d *markerDeleter) add(target halfmsg.Target, ids []string, failures int) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		if failures > 0 || d.deleteBusiness(target, ids) != nil {
			d.config.Metrics.MarkersLeft(target.Producer, len(ids))
		}
		return
	}
	q := d.queueOf(markerKey{Target: target})
	if q.queue.Idle() {
		q.failures = failures
	}
	taken := ids[:min(len(ids), d.loose.Free(), q.queue.Free())]
	for _, id := range taken {
		marker := delivery.Leased{Claim: halfmsg.Claim{DeleteAttempts: failures}}
		marker.Name = halfmsg.Name{Producer: target.Producer, ID: id}
		q.lane.Push(&marker)
	}
	d.mu.Unlock()
	if left := len(ids) - len(taken); left > 0 {
		d.config.Metrics.MarkersLeft(target.Producer, left)
	}
}

// Permit implements delivery.Handler.
func (q *markerQueue) Permit(now time.Time) delivery.Permit {
	if !q.acked {
		return delivery.Proceed
	}
	switch state := q.deletes.state(now); {
	case q.deleter.closed || state == open:
		return delivery.Postpone
	case state == halfOpen:
		return delivery.Probe
	}
	return delivery.Proceed
}

// Begin implements delivery.Handler.
func (q *markerQueue) Begin(permit delivery.Permit) (size int) {
	if permit == delivery.Probe {
		q.deletes.probe()
	}
	return q.deleter.config.Batch
}

// Work implements delivery.Handler.
func (q *markerQueue) Work(b *delivery.Batch) {
	if q.acked {
		q.deleteAcked(b)
	} else {
		q.deleteLoose(b.Messages)
	}
}

// End implements delivery.Handler.
func (q *markerQueue) End(b *delivery.Batch) (room bool) {
	if b.Permit == delivery.Probe {
		q.deletes.probeEnded()
	}
	q.tidy()
	return false // passes come by their schedule
}

// tidy drops an idle queue with nothing to remember. The lock is held.
func (q *markerQueue) tidy() {
	remembers := q.deletes.failures > 0 && min(time.Since(q.usedAt), time.Since(q.deletes.until)) < sharedMemory
	if q.queue.Idle() && !remembers {
		delete(q.deleter.queues, q.markerKey)
	}
}

// deleteLoose deletes loose markers, with a pause after each of so many failures in a row.
func (q *markerQueue) deleteLoose(markers []delivery.Leased) {
	d := q.deleter
	d.mu.Lock()
	failures := q.failures
	d.mu.Unlock()
	if failures > 0 {
		d.pause(deletionPause.Delay(failures - 1))
	}
	err := d.deleteBusiness(q.Target, idsOf(markers))
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		q.failures = 0
		return
	}
	q.failures++
	left := 0
	for i := range markers {
		m := &markers[i]
		if m.DeleteAttempts++; m.DeleteAttempts >= d.config.limits.deleteTries || d.closed || d.loose.Free() == 0 {
			left++
			continue
		}
		q.lane.Push(m)
	}
	if left > 0 {
		d.config.Metrics.MarkersLeft(q.Producer, left)
	}
}

func (d *markerDeleter) pause(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.closing:
	}
}

// deleteBusiness makes one DeleteBusiness call. A panic in it is an error like another: messages wait behind it.
func (d *markerDeleter) deleteBusiness(target halfmsg.Target, ids []string) (err error) {
	ctx, cancel := context.WithTimeout(d.calls, d.config.DeleteTimeout)
	defer cancel()
	assert.Always(len(ids) > 0 && target.Producer != "", "a DeleteBusiness call names markers and their producer",
		target.Producer)
	begun := time.Now()
	if failure := lifecycle.Recovered(func() {
		err = d.config.Callbacks.DeleteBusiness(ctx, target, ids)
	}); failure != nil {
		err = failure
	}
	d.config.Metrics.Deleted(target.Producer, len(ids), time.Since(begun), err)
	return err
}

// close has the loose markers tried once more, without a pause, and the acknowledged messages handed back. The group
// work ends after that.
func (d *markerDeleter) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		close(d.closing)
	}
}

func idsOf(markers []delivery.Leased) []string {
	ids := make([]string, len(markers))
	for i := range markers {
		ids[i] = markers[i].ID
	}
	return ids
}

// deletionsWork says whether the producer has taken the latest deletions.
func (c *Confirmer) deletionsWork(l *lane) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.deletes.state(time.Now()) == closed
}

// deleteMarkers deletes the markers of messages whose fate is stored: with one call, or in the background while the
// producer fails such calls.
func (c *Confirmer) deleteMarkers(l *lane, ids []string) {
	if len(ids) == 0 {
		return
	}
	if !c.mayDelete(l) {
		c.markers.add(l.target, ids, 0)
		return
	}
	err := c.markers.deleteBusiness(l.target, ids)
	c.mu.Lock()
	if err == nil {
		l.deletes.succeed()
	} else {
		l.deletes.fail(time.Now())
		l.busy(l.deletes.until)
	}
	c.mu.Unlock()
	if err != nil {
		c.markers.add(l.target, ids, 1)
	}
}

func (c *Confirmer) mayDelete(l *lane) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := l.deletes.state(time.Now())
	if state == halfOpen {
		l.deletes.probe()
	}
	return state == closed || state == halfOpen
}

// deleteLater deletes the markers of committed messages in the background, where they are deleted before publishing:
// these messages are published by the next lease holder.
func (c *Confirmer) deleteLater(committed []halfmsg.Claim) {
	if c.config.DeleteWhen == BeforePublish {
		c.deleteInBackground(committed)
	}
}

// DeleteLeftMarkers deletes the markers that may be left of acknowledged messages, although they were to be deleted
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
	c.deleteInBackground(left)
}

// targetOf is where the producer of a message is called.
func targetOf(claim *halfmsg.Claim) halfmsg.Target {
	return halfmsg.Target{Producer: claim.Producer, Address: claim.CallbackTarget, MarkerStore: claim.MarkerStore}
}

// deleteInBackground deletes the markers of messages whose fate is stored.
func (c *Confirmer) deleteInBackground(claims []halfmsg.Claim) {
	byTarget := map[halfmsg.Target][]string{}
	for i := range claims {
		assert.Always(claims[i].State != halfmsg.Pending, "no marker is deleted before the fate of its message is stored",
			claims[i].Producer, claims[i].ID)
		target := targetOf(&claims[i])
		byTarget[target] = append(byTarget[target], claims[i].ID)
	}
	for target, ids := range byTarget {
		c.markers.add(target, ids, 0)
	}
}
