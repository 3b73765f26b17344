package confirmloop

import (
	"context"
	"errors"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// confirmCall is one Confirm call about a batch.
type confirmCall struct {
	confirmer *Confirmer
	lane      *lane
	final     bool
}

// ask asks the producer and stores what it said.
func (q *confirmCall) ask(held []delivery.Leased) {
	held, ending := delivery.Lasting(held, q.confirmer.config.Margin)
	q.end(ending)
	if len(held) == 0 {
		return
	}
	words, err := q.verdicts(held)
	var panicked *lifecycle.PanicError
	switch {
	case err == nil:
		q.confirmer.settle(q.lane, words)
	case q.confirmer.calls.Err() != nil:
		q.confirmer.handBack(held)
	case errors.As(err, &panicked):
		q.confirmer.quarantine(q.lane, held, err)
		if len(held) == 1 {
			q.setAside(held[0], panicked)
		}
	case errors.Is(err, halfmsg.ErrCallFailed):
		q.confirmer.failed(q.lane, err)
		q.confirmer.quarantine(q.lane, held, err)
		if len(held) == 1 {
			q.failsFor(held[0], err)
		}
	default:
		q.confirmer.failed(q.lane, err)
		q.confirmer.settle(q.lane, q.confirmer.unreached(q.lane, held, delivery.CauseOf(err)))
	}
}

// end lets go of messages whose leases do not last for a call. Suspects are put off, as others might wait behind them
// for as long again.
func (q *confirmCall) end(ending []delivery.Leased) {
	if q.lane.use != quarantined || len(ending) == 0 {
		q.confirmer.handBack(ending)
		return
	}
	q.confirmer.postpone(q.lane, ending)
}

// verdicts turns the producer's answer into words for the store, one for each message. A panic on the way is an error.
func (q *confirmCall) verdicts(held []delivery.Leased) (words []delivery.Outcome, err error) {
	if failure := lifecycle.Recovered(func() {
		var said map[string]halfmsg.Verdict
		if said, err = q.call(held); err != nil {
			return
		}
		words = make([]delivery.Outcome, len(held))
		for i, h := range held {
			words[i] = q.confirmer.outcomeOf(h, said[h.ID], q.final)
		}
	}); failure != nil {
		return nil, failure
	}
	return words, err
}

// call asks the producer, and notes that it has answered.
func (q *confirmCall) call(held []delivery.Leased) (map[string]halfmsg.Verdict, error) {
	ids := make([]string, len(held))
	until := held[0].Until
	for i, h := range held {
		ids[i] = h.ID
		if h.Until.Before(until) {
			until = h.Until
		}
	}
	ctx, cancel := context.WithDeadline(q.confirmer.calls, until)
	defer cancel()
	ctx, end := q.trace(ctx, held)
	begun := time.Now()
	verdicts, err := q.confirmer.config.Callbacks.Confirm(ctx, q.lane.target, ids, q.final)
	end(err)
	q.confirmer.config.Metrics.Confirmed(q.lane.target.Producer, len(ids), verdicts, time.Since(begun), err)
	if err == nil {
		q.confirmer.answered(q.lane, held)
	}
	return verdicts, err
}

// trace tells the tracer of a call, where there is one.
func (q *confirmCall) trace(ctx context.Context, held []delivery.Leased) (context.Context, func(error)) {
	if q.confirmer.config.Trace == nil {
		return ctx, func(error) {}
	}
	traces := make([]string, len(held))
	for i := range held {
		traces[i] = held[i].Trace
	}
	return q.confirmer.config.Trace(ctx, q.lane.target.Producer, traces)
}

// failsFor puts a message off for which the producer fails the call.
func (q *confirmCall) failsFor(h delivery.Leased, err error) {
	q.confirmer.config.Logger.Warn("producer fails Confirm for one message: the message backs off; look into the producer's log", "message", h.Name,
		"target", q.lane.target.Address, "error", err)
	q.confirmer.settle(q.lane, []delivery.Outcome{{
		Leased: h, Event: halfmsg.EventUnreachable, After: q.confirmer.config.Backoff.DelayAfter(time.Since(h.CreatedAt)),
		Cause: delivery.CauseOf(err),
	}})
}

// setAside puts a message off that brings the asking down: as unreachable, for nobody has said anything about it.
func (q *confirmCall) setAside(h delivery.Leased, failure *lifecycle.PanicError) {
	q.confirmer.config.Logger.Error("poison message set aside: confirming panicked; the message backs off, see the stack", "message", h.Name, "error", failure,
		"stack", string(failure.Stack))
	q.confirmer.settle(q.lane, []delivery.Outcome{{
		Leased: h, Event: halfmsg.EventUnreachable, After: q.confirmer.config.Backoff.Delay(len(q.confirmer.config.Backoff)),
		Cause: delivery.CauseOf(failure),
	}})
}

// answered closes the breakers of a target that has answered, and reports a circuit that was open.
func (c *Confirmer) answered(l *lane, held []delivery.Leased) {
	c.mu.Lock()
	reopened := c.recordAnswer(l, held)
	c.mu.Unlock()
	if reopened {
		c.config.Metrics.Paused(l.target.Producer, false)
		c.config.Logger.Info("producer reachable again: circuit closed",
			"producer", l.target.Producer, "target", l.target.Address)
	}
}

// failed counts a failed call, and reports a circuit that opens.
func (c *Confirmer) failed(l *lane, err error) {
	c.mu.Lock()
	opened := c.recordFailure(l, err)
	c.mu.Unlock()
	if opened {
		c.config.Metrics.Paused(l.target.Producer, true)
		c.config.Logger.Warn("producer unreachable: circuit open, its messages wait; check its target and its log",
			"producer", l.target.Producer, "target", l.target.Address, "error", err)
	}
}

// unreached are the words for messages whose producer is left alone: they are put off until it is tried again, and
// those for which it fails the call by the pause that they would have after that, or many would come back again and
// again.
func (c *Confirmer) unreached(l *lane, held []delivery.Leased, cause string) []delivery.Outcome {
	words := make([]delivery.Outcome, len(held))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, h := range held {
		after := l.confirms.pauseLeft(time.Now())
		if l.quarantine[h.ID] {
			after = max(after, c.config.Backoff.DelayAfter(time.Since(h.CreatedAt)))
		}
		words[i] = delivery.Outcome{Leased: h, Event: halfmsg.EventUnreachable, After: after, Cause: cause}
	}
	return words
}
