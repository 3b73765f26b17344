package confirmloop

import (
	"context"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// handBackPatience is for how long handing back is tried: callers wait for it, and the lease ends by itself.
const handBackPatience = 2 * time.Second

// do does what a job is there for.
func (c *Confirmer) do(j job) {
	switch j.task {
	case ask:
		c.confirm(j)
	case postpone:
		c.postpone(j.lane, j.held)
	case handBack:
		c.handBack(j.held)
	}
}

// confirm is the way of a batch: ask the producer, store what it said, delete the markers, send. Final questions come
// last, as a producer may take long to decide what it has to decide for good.
func (c *Confirmer) confirm(j job) {
	if j.lane.committed {
		c.deliver(j.lane, j.held)
		return
	}
	usual, final := c.kinds(j.held)
	(&confirmCall{confirmer: c, lane: j.lane}).ask(usual)
	(&confirmCall{confirmer: c, lane: j.lane, final: true}).ask(final)
}

// kinds splits messages into those that are asked about as usual, and those for which that was done often enough.
func (c *Confirmer) kinds(held []delivery.Leased) (usual, final []delivery.Leased) {
	for _, h := range held {
		if h.ConfirmAttempts >= c.config.Attempts {
			final = append(final, h)
		} else {
			usual = append(usual, h)
		}
	}
	return usual, final
}

// settle stores words, deletes the markers of what has its fate by that, and sends what is committed.
func (c *Confirmer) settle(l *lane, words []delivery.Outcome) {
	until := time.Now().Add(c.config.SendLease)
	c.settler.Settle(c.calls, words, func(words []delivery.Outcome, results []halfmsg.Result) {
		settled, committed := c.stored(words, results)
		c.conclude(l, settled, committed, until)
	})
}

// deliver is the way of messages whose verdict was stored with their Submit: delete the markers, send.
func (c *Confirmer) deliver(l *lane, held []delivery.Leased) {
	held, ending := delivery.Lasting(held, c.config.Margin)
	c.handBack(ending)
	if len(held) == 0 {
		return
	}
	var settled []string
	until := held[0].Until
	for _, h := range held {
		if c.config.DeleteWhen == BeforePublish {
			settled = append(settled, h.ID)
		}
		if h.Until.Before(until) {
			until = h.Until
		}
	}
	c.conclude(l, settled, delivery.Claims(held), until)
}

// conclude deletes the markers of messages whose fate is stored, and sends those that are committed. Messages wait for
// a deletion that can be expected to work, but not for one that tries whether it works again.
func (c *Confirmer) conclude(l *lane, settled []string, committed []halfmsg.Claim, until time.Time) {
	first := c.deletionsWork(l)
	if first {
		c.deleteMarkersNow(l, settled)
	}
	if len(committed) > 0 {
		c.config.Pipeline.Committed(committed, until)
	}
	if !first {
		c.deleteMarkersNow(l, settled)
	}
}

// deletionsWork says whether the producer has taken the latest deletions.
func (c *Confirmer) deletionsWork(l *lane) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.deletes.state(time.Now()) == closed
}

// stored sorts what the store said: the ids of the messages whose markers are not needed any more, and the messages
// that can be sent now. Of a message that the store refused neither is true: it has another owner, or another fate.
func (c *Confirmer) stored(
	words []delivery.Outcome, results []halfmsg.Result,
) (settled []string, committed []halfmsg.Claim) {
	for i := range words {
		w := &words[i]
		if results[i].Err != nil {
			continue
		}
		switch w.Event {
		case halfmsg.EventCommitted:
			c.config.Metrics.Committed(&w.Claim)
			if c.config.DeleteWhen == BeforePublish {
				settled = append(settled, w.ID)
			}
			if w.Hold > 0 && results[i].State == halfmsg.Sendable {
				committed = append(committed, sendable(w.Claim))
			}
		case halfmsg.EventRolledBack:
			settled = append(settled, w.ID)
		case halfmsg.EventGivenUp:
			c.config.Logger.Warn("a message was abandoned: its producer gave no verdict", "message", w.Name,
				"attempts", w.ConfirmAttempts)
		default: // still pending: its marker is needed
		}
	}
	return settled, committed
}

// sendable is a claim after the verdict COMMITTED was stored under it. The time is this instance's: it differs from the
// store's by less than the second that the broker keeps of it.
func sendable(claim halfmsg.Claim) halfmsg.Claim {
	claim.State = halfmsg.Sendable
	claim.SendableAt = time.Now()
	return claim
}

// outcomeOf is what a verdict means for a message.
func (c *Confirmer) outcomeOf(h delivery.Leased, verdict halfmsg.Verdict, final bool) delivery.Outcome {
	w := delivery.Outcome{Leased: h}
	switch {
	case verdict == halfmsg.VerdictCommitted:
		w.Event, w.After = halfmsg.EventCommitted, h.Delay
		if h.Delay == 0 {
			w.Hold = c.config.SendLease
		}
	case verdict == halfmsg.VerdictRolledBack:
		w.Event = halfmsg.EventRolledBack
	case verdict == halfmsg.VerdictUnavailable:
		w.Event, w.After = halfmsg.EventUnreachable, c.config.Backoff.DelayAfter(time.Since(h.CreatedAt))
		w.Cause = "the producer answered UNAVAILABLE: it could not find out"
	case final:
		w.Event, w.Cause = halfmsg.EventGivenUp, "the producer answered UNKNOWN to the final question"
	default:
		w.Event, w.After = halfmsg.EventUnknown, c.config.Backoff.Delay(h.ConfirmAttempts)
		w.Cause = "the producer answered UNKNOWN"
	}
	return w
}

// postpone puts messages off until their target is tried again.
func (c *Confirmer) postpone(l *lane, held []delivery.Leased) {
	c.mu.Lock()
	cause := l.cause
	c.mu.Unlock()
	c.settler.Settle(c.calls, c.unreached(l, held, cause), ignore)
}

// handBack gives messages back to the store, due at once.
func (c *Confirmer) handBack(held []delivery.Leased) {
	ctx, cancel := context.WithTimeout(c.calls, handBackPatience)
	defer cancel()
	words := make([]delivery.Outcome, len(held))
	var committed []halfmsg.Claim
	for i, h := range held {
		words[i] = delivery.Outcome{Leased: h, Event: halfmsg.EventReleased}
		if h.State == halfmsg.Sendable {
			committed = append(committed, h.Claim)
		}
	}
	c.deleteLater(committed)
	c.settler.Settle(ctx, words, ignore)
}

func ignore([]delivery.Outcome, []halfmsg.Result) {}

// deleteMarkersNow deletes the markers of messages whose fate is stored: with one call, or in the background while the
// producer fails such calls.
func (c *Confirmer) deleteMarkersNow(l *lane, ids []string) {
	if len(ids) == 0 {
		return
	}
	if !c.mayDelete(l) {
		c.markers.add(l.target, ids, 0)
		return
	}
	err := c.deleteBusiness(l.target, ids)
	c.mu.Lock()
	if err == nil {
		l.deletes.succeed()
	} else {
		l.deletes.fail(time.Now())
	}
	c.mu.Unlock()
	if err != nil {
		c.markers.add(l.target, ids, 1)
	}
}

func (c *Confirmer) mayDelete(l *lane) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	standing := l.deletes.state(time.Now())
	if standing == halfOpen {
		l.deletes.probe()
	}
	return standing == closed || standing == halfOpen
}

// deleteBusiness makes one DeleteBusiness call. A panic in it is an error like another: messages wait behind it.
func (c *Confirmer) deleteBusiness(target halfmsg.Target, ids []string) (err error) {
	ctx, cancel := context.WithTimeout(c.calls, c.config.DeleteTimeout)
	defer cancel()
	begun := time.Now()
	if failure := lifecycle.Recovered(func() {
		err = c.config.Callbacks.DeleteBusiness(ctx, target, ids)
	}); failure != nil {
		err = failure
	}
	c.config.Metrics.Deleted(target.Producer, len(ids), time.Since(begun), err)
	return err
}
