package sendloop

import (
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// flight is a batch under way. What the broker says of it is stored in groups, as the answers come: a message whose
// queue does not confirm keeps nobody waiting.
type flight struct {
	sender  *Sender
	backlog bool
	// storing is what stores groups: one that takes long holds up no other.
	storing sync.WaitGroup

	// The following are guarded by Sender.mu.

	// left is how many messages the broker was asked to take and that are not settled yet.
	left int
	// heard says that the broker has answered, stands that the batch still takes one of the places.
	heard, stands bool
}

// send is the way of a batch: publish, store what the broker said, copy what is dead and store that, too.
func (f *flight) send(held []delivery.Leased) {
	lasting, ending := delivery.Lasting(held, f.sender.config.Margin)
	f.sender.handBack(ending)
	f.left = len(lasting)
	defer f.storing.Wait()
	f.publish(lasting)
}

// publish publishes messages and has what came of them stored. When a batch brings the publisher down, its parts are
// published again, as further copies since the first may be out; the message that does it is set aside by itself.
func (f *flight) publish(held []delivery.Leased) {
	tries := 0
	delivery.Isolate(held, func(part []delivery.Leased) {
		again := min(tries, 1)
		tries++
		f.attempt(part, again)
	}, func(h delivery.Leased, failure *lifecycle.PanicError) {
		f.sender.config.Logger.Error("a message was set aside: it cannot be published", "message", h.Name, "error", failure,
			"stack", string(failure.Stack))
		f.answered([]delivery.Outcome{{
			Leased: h, Event: halfmsg.EventUnsure, After: unsure.Delay(len(unsure)), Cause: delivery.CauseOf(failure),
		}})
	})
}

// attempt makes one Publish call. again is 1 when a call before it may have sent the same messages.
func (f *flight) attempt(held []delivery.Leased, again int) {
	if err := f.sender.config.Publisher.Ready(); err != nil {
		f.answered(f.sender.unsent(held, delivery.CauseOf(err)))
		return
	}
	batch := make([]halfmsg.Publishing, len(held))
	for i, h := range held {
		batch[i] = publishing(h.Claim, again)
	}
	begun, some := time.Now(), false
	failure := lifecycle.Recovered(func() {
		f.sender.config.Publisher.Publish(f.sender.calls, batch, func(places []int, results []halfmsg.PublishResult) {
			some = some || len(places) > 0
			words := make([]delivery.Outcome, len(places))
			for n, i := range places {
				words[n] = f.sender.outcomeOf(held[i], results[n])
				held[i].Body, batch[i].Body = nil, nil // or they would stay as long as one of the batch has no answer
			}
			f.count(words, results, time.Since(begun))
			f.answered(words)
		})
	})
	switch {
	case failure == nil:
	case some: // what is left is done again when its lease ends
		f.sender.brokeOff(len(held), failure)
	default:
		panic(failure)
	}
}

// count tells the metrics how publishings fared, what was acknowledged last: whoever looks at an exchange takes the
// latest for what is.
func (f *flight) count(words []delivery.Outcome, results []halfmsg.PublishResult, took time.Duration) {
	if len(words) == 0 {
		return
	}
	f.sender.config.Metrics.PublishedBatch(len(words), took)
	type published struct {
		exchange string
		outcome  halfmsg.Outcome
	}
	counts := map[published]int{}
	causes := map[string]error{}
	for i := range words {
		exchange, result := words[i].Exchange, results[i]
		counts[published{exchange, result.Outcome}]++
		if result.Outcome != halfmsg.Acked {
			causes[exchange] = result.Cause
		}
	}
	for exchange, cause := range causes {
		f.sender.config.Metrics.Failed(exchange, cause)
	}
	for _, acked := range []bool{false, true} {
		for p, n := range counts {
			if (p.outcome == halfmsg.Acked) == acked {
				f.sender.config.Metrics.Published(p.exchange, p.outcome, n)
			}
		}
	}
}

// answered has stored what became of some messages. Those that are about to become DEAD wait for their copies by
// themselves.
func (f *flight) answered(words []delivery.Outcome) {
	f.sender.hear(f)
	f.storing.Go(func() {
		if failure := lifecycle.Recovered(func() {
			dying, others := f.dying(words)
			f.store(others)
			if len(dying) > 0 {
				f.copyDead(dying)
				f.store(dying)
			}
		}); failure != nil {
			f.sender.brokeOff(len(words), failure)
		}
	})
}

// store stores words and counts their messages as settled.
func (f *flight) store(words []delivery.Outcome) {
	until := time.Now().Add(f.sender.config.Lease)
	f.sender.settler.Settle(f.sender.calls, words, func(words []delivery.Outcome, results []halfmsg.Result) {
		f.sender.stored(words, results, until)
	})
	f.sender.settled(f, len(words))
}

// dying splits words into those whose messages are copied before they become DEAD, and the others.
func (f *flight) dying(words []delivery.Outcome) (dying, others []delivery.Outcome) {
	if f.sender.config.DeadLetterExchange == "" {
		return nil, words
	}
	for i := range words {
		if words[i].Event == halfmsg.EventExhausted {
			dying = append(dying, words[i])
		}
	}
	if len(dying) == 0 {
		return nil, words
	}
	for i := range words {
		if words[i].Event != halfmsg.EventExhausted {
			others = append(others, words[i])
		}
	}
	return dying, others
}

// copyDead copies the messages that are about to become DEAD to the dead-letter exchange. A copy of which nobody knows
// that it arrived puts its message off instead, and so does a lease that may end before the answer comes. One that is
// refused stops nothing: the message is kept.
func (f *flight) copyDead(words []delivery.Outcome) {
	copies := make([]halfmsg.Publishing, 0, len(words))
	var of []int
	latest := time.Now().Add(f.sender.config.Margin)
	for i := range words {
		if words[i].Until.After(latest) {
			of, copies = append(of, i), append(copies, f.sender.deadCopy(&words[i]))
		}
	}
	outcomes := make([]halfmsg.PublishResult, len(words)) // no outcome at all is not an arrival either
	if failure := lifecycle.Recovered(func() {
		f.sender.config.Publisher.Publish(f.sender.calls, copies, func(places []int, results []halfmsg.PublishResult) {
			for n, i := range places {
				outcomes[of[i]] = results[n]
			}
		})
	}); failure != nil {
		f.sender.config.Logger.Error("messages could not be copied to the dead-letter exchange", "messages", len(copies),
			"error", failure, "stack", string(failure.Stack))
	}
	for i := range words {
		w := &words[i]
		switch outcomes[i].Outcome {
		case halfmsg.Acked:
		case halfmsg.Refused:
			f.sender.config.Logger.Error("the dead-letter exchange refused a message", "message", w.Name,
				"exchange", f.sender.config.DeadLetterExchange, "error", outcomes[i].Cause)
		default:
			w.Event, w.After = halfmsg.EventRefused, f.sender.config.Backoff.Delay(w.PublishAttempts)
		}
	}
}
