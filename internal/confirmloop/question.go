package confirmloop

import (
	"context"
	"errors"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/halfmsg/owner"
)

// question is what a producer is asked about a batch: with one call, or with several where it fails that one because of a
// single message, so that the others have their verdicts all the same.
type question struct {
	*Confirmer
	lane  *lane
	final bool
	// failed is why the producer failed the latest call that it failed, over why nothing more is asked; nil while it is.
	failed, over error
}

// ask asks the producer, or nobody where the Submit is the verdict, and stores what it said. Where it fails the call the
// halves are asked, down to the message that it fails for. When the lease does not last for that, the producer is one that
// cannot be reached: what is left is put off, and the next batch is smaller.
func (q *question) ask(held []owner.Held) {
	held, ending := owner.Lasting(held, q.config.Margin)
	if len(ending) > 0 && q.failed != nil {
		q.end(q.failed)
		q.leave(ending)
	} else {
		q.handBack(ending, q.lane.trusted)
	}
	if len(held) == 0 {
		return
	}
	if q.over != nil {
		q.leave(held)
		return
	}
	words, err := q.verdicts(held)
	var panicked *owner.PanicError
	switch {
	case err == nil:
		q.settle(q.lane, words)
	case q.calls.Err() != nil:
		q.handBack(held, false)
	case !errors.Is(err, halfmsg.ErrCallFailed) && !errors.As(err, &panicked):
		q.end(err)
		q.leave(held)
	case len(held) > 1:
		q.failed = err
		half := len(held) / 2
		q.atMost(half)
		q.ask(held[:half])
		q.ask(held[half:])
	case panicked != nil:
		q.setAside(held[0], panicked)
	default:
		q.failsFor(held[0], err)
	}
}

// end asks nothing more, as the producer cannot be reached.
func (q *question) end(err error) {
	if q.over == nil {
		q.over = err
		q.reached(q.lane, err)
	}
}

// leave puts messages off until the producer is tried again.
func (q *question) leave(held []owner.Held) {
	q.settle(q.lane, q.unreached(q.lane, held, owner.CauseOf(q.over)))
}

// atMost makes the lane's next batches smaller, until the producer answers.
func (q *question) atMost(messages int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lane.most == 0 || messages < q.lane.most {
		q.lane.most = messages
	}
}

// verdicts turns the producer's answer into words for the store, one for each message. Where a Submit is the verdict it
// asks nobody. A panic on the way is an error.
func (q *question) verdicts(held []owner.Held) (words []owner.Word, err error) {
	if failure := owner.Recovered(func() {
		var said map[string]halfmsg.Verdict
		if !q.lane.trusted {
			if said, err = q.call(held); err != nil {
				return
			}
		}
		words = make([]owner.Word, len(held))
		for i, h := range held {
			verdict := halfmsg.VerdictCommitted
			if !q.lane.trusted {
				verdict = said[h.ID]
			}
			words[i] = q.word(h, verdict, q.final)
		}
	}); failure != nil {
		return nil, failure
	}
	return words, err
}

// call asks the producer, and tells the lane's breaker when it has answered.
func (q *question) call(held []owner.Held) (map[string]halfmsg.Verdict, error) {
	ids := make([]string, len(held))
	until := held[0].Until
	for i, h := range held {
		ids[i] = h.ID
		if h.Until.Before(until) {
			until = h.Until
		}
	}
	ctx, cancel := context.WithDeadline(q.calls, until)
	defer cancel()
	ctx, end := q.trace(ctx, held)
	begun := time.Now()
	verdicts, err := q.config.Callbacks.Confirm(ctx, q.lane.target, ids, q.final)
	end(err)
	q.config.Metrics.Confirmed(q.lane.target.Producer, len(ids), verdicts, time.Since(begun), err)
	if err == nil {
		q.reached(q.lane, nil)
	}
	return verdicts, err
}

// trace tells the tracer of a call, where there is one.
func (q *question) trace(ctx context.Context, held []owner.Held) (context.Context, func(error)) {
	if q.config.Trace == nil {
		return ctx, func(error) {}
	}
	traces := make([]string, len(held))
	for i := range held {
		traces[i] = held[i].Trace
	}
	return q.config.Trace(ctx, q.lane.target.Producer, traces)
}

// failsFor puts a message off for which the producer fails the call. Only when it fails for one after the other for which
// it did not fail before, and answers for none in between, that tells of the producer.
func (q *question) failsFor(h owner.Held, err error) {
	q.config.Logger.Warn("a producer fails the question about a message; it is asked less and less", "message", h.Name,
		"target", q.lane.target.Address, "error", err)
	q.settle(q.lane, []owner.Word{{
		Held: h, Event: halfmsg.EventUnreachable, After: q.config.Backoff.DelayAfter(time.Since(h.CreatedAt)),
		Cause: owner.CauseOf(err),
	}})
	q.mu.Lock()
	inARow := q.lane.failing.add(h.ID)
	q.mu.Unlock()
	if inARow > 1 && !q.reached(q.lane, err) {
		q.over = err
	}
}

// setAside puts a message off that brings the asking down: as unreachable, for nobody has said anything about it.
func (q *question) setAside(h owner.Held, failure *owner.PanicError) {
	q.config.Logger.Error("a message was set aside: it cannot be confirmed", "message", h.Name, "error", failure,
		"stack", string(failure.Stack))
	q.settle(q.lane, []owner.Word{{
		Held: h, Event: halfmsg.EventUnreachable, After: q.config.Backoff.Delay(len(q.config.Backoff)),
		Cause: owner.CauseOf(failure),
	}})
}

// reached tells a lane's breaker how a call fared, and people when that opened or closed it. It says whether the producer
// may be called again.
func (c *Confirmer) reached(l *lane, err error) (may bool) {
	c.mu.Lock()
	var opened, reopened bool
	if err == nil {
		reopened = l.confirms.succeed()
		l.answered(c.config.Batch)
	} else {
		opened = l.confirms.fail(time.Now())
		l.cause = owner.CauseOf(err)
	}
	may = l.confirms.standing(time.Now()) == closed
	c.mu.Unlock()
	switch {
	case opened:
		c.config.Metrics.Paused(l.target.Producer, true)
		c.config.Logger.Warn("a producer cannot be reached; it is left alone for a while",
			"producer", l.target.Producer, "target", l.target.Address, "error", err)
	case reopened:
		c.config.Metrics.Paused(l.target.Producer, false)
		c.config.Logger.Info("a producer can be reached again",
			"producer", l.target.Producer, "target", l.target.Address)
	}
	return may
}

// unreached are the words for messages whose producer is left alone: they are put off until it is tried again.
func (c *Confirmer) unreached(l *lane, held []owner.Held, cause string) []owner.Word {
	words := make([]owner.Word, len(held))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, h := range held {
		words[i] = owner.Word{Held: h, Event: halfmsg.EventUnreachable, After: l.confirms.wait(time.Now()), Cause: cause}
	}
	return words
}
