package confirmloop

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
)

// handBackTimeout is how long handing back is tried: callers wait meanwhile, and the lease ends anyway.
const handBackTimeout = 2 * time.Second

// promptAnswer is how soon a producer answers that is well. The calls of a producer that takes longer end together, and
// their messages come to the store in bursts.
const promptAnswer = 250 * time.Millisecond

// confirmCall is one Confirm call about a batch.
type confirmCall struct {
	confirmer *Confirmer
	lane      *lane
	// final says that the producer has to decide now, and that UNKNOWN gives the messages up.
	final bool
}

// Work implements delivery.Handler: ask the producer, store the verdicts, delete the markers, send. The final call
// comes last, since a producer may take long to decide.
func (l *lane) Work(b *delivery.Batch) {
	c := l.producer.confirmer
	switch {
	case b.Permit == delivery.Postpone:
		c.postpone(l, b.Messages)
	case l.committed:
		c.deliver(l, b.Messages)
	default:
		usual, final := c.splitFinal(b.Messages)
		(&confirmCall{confirmer: c, lane: l}).askProducer(usual)
		(&confirmCall{confirmer: c, lane: l, final: true}).askProducer(final)
	}
}

// splitFinal splits off the messages that have used up their attempts or their time, and get the final call.
func (c *Confirmer) splitFinal(held []delivery.Leased) (usual, final []delivery.Leased) {
	isFinal := func(h *delivery.Leased) bool {
		return h.ConfirmAttempts >= c.config.Attempts || c.pastLimit(h) || c.pastPatience(h)
	}
	if !slices.ContainsFunc(held, func(h delivery.Leased) bool { return isFinal(&h) }) {
		return held, nil
	}
	for _, h := range held {
		if isFinal(&h) {
			final = append(final, h)
		} else {
			usual = append(usual, h)
		}
	}
	return usual, final
}

// askProducer asks the producer and stores the verdicts.
func (q *confirmCall) askProducer(held []delivery.Leased) {
	held, ending := delivery.Lasting(held, q.confirmer.config.Margin)
	q.end(ending)
	if len(held) == 0 {
		return
	}
	outcomes, err := q.outcomes(held)
	var panicked *lifecycle.PanicError
	switch {
	case err == nil:
		q.confirmer.storeOutcomes(q.lane, outcomes)
	case q.confirmer.calls.Err() != nil:
		q.confirmer.handBack(held)
	case errors.As(err, &panicked):
		q.lane.isolate(held, err)
		if len(held) == 1 {
			q.panicsFor(held[0], panicked)
		}
	case errors.Is(err, halfmsg.ErrCallFailed):
		q.lane.failed(err)
		q.lane.isolate(held, err)
		if len(held) == 1 {
			q.failsFor(held[0], err)
		}
	default:
		q.lane.failed(err)
		q.confirmer.storeOutcomes(q.lane, q.confirmer.unreached(q.lane, held, delivery.CauseOf(err)))
	}
}

// end lets go of messages whose leases do not last for a call. Quarantined messages are postponed, since others might
// wait behind them for as long again.
func (q *confirmCall) end(ending []delivery.Leased) {
	if q.lane.use != quarantined || len(ending) == 0 {
		q.confirmer.handBack(ending)
		return
	}
	q.confirmer.postpone(q.lane, ending)
}

// outcomes turns the producer's answer into one outcome for each message. A panic on the way is an error.
func (q *confirmCall) outcomes(held []delivery.Leased) (outcomes []delivery.Outcome, err error) {
	begun := time.Now()
	if failure := lifecycle.Recovered(func() {
		var verdicts map[string]halfmsg.Verdict
		if verdicts, err = q.call(held); err != nil {
			return
		}
		outcomes = make([]delivery.Outcome, len(held))
		prompt := time.Since(begun) < promptAnswer
		for i, h := range held {
			h.Prompt = prompt
			outcomes[i] = q.confirmer.outcomeOf(h, verdicts[h.ID], q.final)
		}
	}); failure != nil {
		return nil, failure
	}
	return outcomes, err
}

// call asks the producer, and records that the producer has answered.
func (q *confirmCall) call(held []delivery.Leased) (map[string]halfmsg.Verdict, error) {
	ids := make([]string, len(held))
	for i := range held {
		ids[i] = held[i].ID
	}
	ctx, cancel := context.WithDeadline(q.confirmer.calls, firstEnd(held))
	defer cancel()
	ctx, end := q.trace(ctx, held)
	begun := time.Now()
	verdicts, err := q.confirmer.config.Callbacks.Confirm(ctx, q.lane.target, ids, q.final)
	end(err)
	q.confirmer.config.Metrics.Confirmed(q.lane.target.Producer, len(ids), verdicts, time.Since(begun), err)
	if err == nil {
		q.lane.answered(held)
	}
	return verdicts, err
}

// firstEnd is when the first of the leases ends.
func firstEnd(held []delivery.Leased) time.Time {
	until := held[0].Until
	for i := range held {
		if held[i].Until.Before(until) {
			until = held[i].Until
		}
	}
	return until
}

// trace begins the span of a call, where calls are traced.
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

// failsFor postpones a message for which the producer fails the call.
func (q *confirmCall) failsFor(h delivery.Leased, err error) {
	q.confirmer.failures.Add(loglimit.Failure{
		Level:    slog.LevelWarn,
		Text:     "producer fails Confirm for single messages: each backs off; look into the producer's log",
		Producer: h.Producer, MessageID: h.Name.String(), Cause: delivery.CauseOf(err),
		More: []slog.Attr{slog.String("target", q.lane.target.Address)},
	})
	q.putOff(h, q.confirmer.config.Backoff.DelayAfter(h.Age()), err)
}

// putOff gives a message back to the store for a time.
func (q *confirmCall) putOff(h delivery.Leased, after time.Duration, err error) {
	q.confirmer.mu.Lock()
	q.lane.putOff(after)
	q.confirmer.mu.Unlock()
	q.confirmer.storeOutcomes(q.lane, []delivery.Outcome{q.confirmer.unanswered(h, after, delivery.CauseOf(err))})
}

// panicsFor postpones a message that makes the call panic: as unreachable, since no producer has answered.
func (q *confirmCall) panicsFor(h delivery.Leased, failure *lifecycle.PanicError) {
	q.confirmer.failures.Add(loglimit.Failure{
		Level: slog.LevelError, Text: "poison messages set aside: confirming panicked; each message backs off, see the stack",
		Producer: h.Producer, MessageID: h.Name.String(), Cause: delivery.CauseOf(failure),
		More: []slog.Attr{slog.String("stack", string(failure.Stack))},
	})
	q.putOff(h, q.confirmer.config.Backoff.Delay(len(q.confirmer.config.Backoff)), failure)
}

// outcomeOf is the event that a verdict means for a message.
func (c *Confirmer) outcomeOf(h delivery.Leased, verdict halfmsg.Verdict, final bool) delivery.Outcome {
	assert.Always(h.State == halfmsg.Pending, "a verdict is stored for PENDING messages only", h.Producer, h.ID)
	o := delivery.Outcome{Leased: h}
	switch {
	case verdict == halfmsg.VerdictCommitted:
		o.Event, o.After = halfmsg.EventCommitted, h.Delay
		if h.Delay == 0 {
			o.Hold = c.config.SendLease
		}
	case verdict == halfmsg.VerdictRolledBack:
		o.Event = halfmsg.EventRolledBack
	case verdict == halfmsg.VerdictUnavailable:
		return c.unanswered(h, c.config.Backoff.DelayAfter(h.Age()),
			"the producer answered UNAVAILABLE: it could not find out")
	case final:
		assert.Always(h.ConfirmAttempts >= c.config.Attempts || c.pastLimit(&h) || c.pastPatience(&h),
			"a message is given up after its attempts, its time limit or its successors' patience", h.Producer, h.ID)
		o.Event, o.Cause = halfmsg.EventGivenUp, "the producer answered UNKNOWN to the final question"
		switch {
		case c.pastLimit(&h):
			o.Cause = c.limitCause(o.Cause)
		case c.pastPatience(&h):
			o.Cause = c.patienceCause(o.Cause)
		}
	default:
		o.Event, o.After = halfmsg.EventUnknown, c.beforeLimit(&h, c.config.Backoff.Delay(h.ConfirmAttempts))
		o.Cause = "the producer answered UNKNOWN"
	}
	return o
}

// storeOutcomes stores outcomes, deletes the markers of messages whose fate is stored, and sends committed messages.
func (c *Confirmer) storeOutcomes(l *lane, outcomes []delivery.Outcome) {
	until := time.Now().Add(c.config.SendLease)
	c.settler.Settle(c.calls, outcomes, func(outcomes []delivery.Outcome, results []halfmsg.Result) {
		settled, committed := c.stored(outcomes, results)
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
	for i := range held {
		assert.Always(held[i].State == halfmsg.Sendable, "a message is sent without Confirm only with its verdict stored",
			held[i].Producer, held[i].ID)
		if c.config.DeleteWhen == BeforePublish {
			settled = append(settled, held[i].ID)
		}
	}
	c.conclude(l, settled, delivery.Claims(held), firstEnd(held))
}

// conclude deletes the markers of messages whose fate is stored, and sends committed messages. Messages wait for a
// deletion that will probably work, but not for a probe.
func (c *Confirmer) conclude(l *lane, settled []string, committed []halfmsg.Claim, until time.Time) {
	deleteFirst := c.deletionsWork(l)
	if deleteFirst {
		c.deleteMarkers(l, settled)
	}
	if len(committed) > 0 {
		c.config.Pipeline.Committed(committed, until)
	}
	if !deleteFirst {
		c.deleteMarkers(l, settled)
	}
}

// stored sorts the results of the store: the ids of the messages whose markers are not needed any more, and the
// messages that can be sent now. A message that the store refused is in neither list: it has another owner, or another
// fate.
func (c *Confirmer) stored(
	outcomes []delivery.Outcome, results []halfmsg.Result,
) (settled []string, committed []halfmsg.Claim) {
	for i := range outcomes {
		o := &outcomes[i]
		if results[i].Err != nil {
			continue
		}
		state := results[i].State
		switch o.Event {
		case halfmsg.EventCommitted:
			assert.Always(state == halfmsg.Sendable, "a stored COMMITTED leaves the message SENDABLE", o.Producer, o.ID)
			c.config.Metrics.Committed(&o.Claim)
			if c.config.DeleteWhen == BeforePublish {
				settled = append(slices.Grow(settled, len(outcomes)-i), o.ID)
			}
			if o.Hold > 0 && !results[i].Waits {
				committed = append(slices.Grow(committed, len(outcomes)-i), sendable(o.Claim))
			}
		case halfmsg.EventRolledBack:
			assert.Always(state == halfmsg.RolledBack, "a stored ROLLED_BACK ends the message", o.Producer, o.ID)
			settled = append(settled, o.ID)
		case halfmsg.EventGivenUp:
			c.abandoned(o, "messages are ABANDONED: their producer gave no verdict; retry the messages when it can answer")
		case halfmsg.EventTimedOut:
			c.abandoned(o, "messages are ABANDONED: their time limit has passed and their producer gave no answer; "+
				"retry the messages when the producer can answer")
		default: // still pending: its marker is needed
		}
	}
	return settled, committed
}

// abandoned logs a message that was given up.
func (c *Confirmer) abandoned(o *delivery.Outcome, text string) {
	c.failures.Add(loglimit.Failure{
		Level: slog.LevelWarn, Text: text, Producer: o.Producer, Exchange: o.Exchange, MessageID: o.Name.String(),
		Cause: o.Cause, More: []slog.Attr{slog.Int("attempts", o.ConfirmAttempts)},
	})
}

// sendable is a claim after the verdict COMMITTED was stored under it. The time is this instance's: it differs from the
// store's by less than the second that the broker keeps of it.
func sendable(claim halfmsg.Claim) halfmsg.Claim {
	claim.State = halfmsg.Sendable
	claim.SendableAt, claim.ClaimedAt = time.Now(), time.Time{} // the claim's time is the store's
	return claim
}

// postpone gives messages back to the store until their target is tried again.
func (c *Confirmer) postpone(l *lane, held []delivery.Leased) {
	c.mu.Lock()
	cause := l.cause
	c.mu.Unlock()
	c.settler.Settle(c.calls, c.unreached(l, held, cause), ignore)
}

// unreached are the outcomes of messages whose circuit is open: they wait until the target is tried again, or are given
// up after their time limit. A message for which the producer fails the call waits at least for its own backoff, or
// many would return again and again. A quarantined message is given up only when a call about the message alone has
// failed.
func (c *Confirmer) unreached(l *lane, held []delivery.Leased, cause string) []delivery.Outcome {
	outcomes := make([]delivery.Outcome, len(held))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, h := range held {
		after := l.confirms.pauseLeft(time.Now())
		assert.Always(h.State == halfmsg.Pending, "messages that wait for an open circuit are PENDING", h.Producer, h.ID)
		if l.quarantine[h.ID] {
			after = max(after, c.config.Backoff.DelayAfter(h.Age()))
		}
		l.putOff(after)
		if l.use == quarantined && !l.quarantine[h.ID] {
			outcomes[i] = delivery.Outcome{Leased: h, Event: halfmsg.EventUnreachable, After: after, Cause: cause}
			continue
		}
		outcomes[i] = c.unanswered(h, after, cause)
	}
	return outcomes
}

// handBack gives messages back to the store, due at once.
func (c *Confirmer) handBack(held []delivery.Leased) {
	if len(held) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(c.calls)
	time.AfterFunc(handBackTimeout, cancel) // later than this call may return: the rest is tried beside
	outcomes := make([]delivery.Outcome, len(held))
	var committed []halfmsg.Claim
	for i, h := range held {
		assert.Always(h.Token != "", "the confirm stage hands back only what it holds", h.Producer, h.ID)
		outcomes[i] = delivery.Outcome{Leased: h, Event: halfmsg.EventReleased}
		if h.State == halfmsg.Sendable {
			committed = append(committed, h.Claim)
		}
	}
	c.deleteLater(committed)
	c.settler.Settle(ctx, outcomes, ignore)
}

func ignore([]delivery.Outcome, []halfmsg.Result) {}
