package sendloop

import (
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// The headers that a copy on the dead-letter exchange has besides those of its message.
const (
	// HeaderReason is what the broker said last, at most halfmsg.MaxCause characters.
	HeaderReason = "msghandler-dead-reason"
	// HeaderAttempts is how often the broker refused the message.
	HeaderAttempts = "msghandler-dead-attempts"
	// HeaderExchange is the exchange it was meant for; its routing key is kept as the copy's own, and in HeaderKey.
	HeaderExchange = "msghandler-origin-exchange"
	// HeaderKey is the routing key it was meant for.
	HeaderKey = "msghandler-origin-routing-key"
)

var (
	// unsent is how long a message waits that never left. While the broker takes none that is the first step: it may be
	// back in a moment, and Pass waits for it anyway.
	unsent = backoff.Exponential(4*time.Second, time.Minute)
	// unsure is how long one waits whose outcome nobody learned. It grows with the copies that may be out.
	unsure = backoff.Exponential(2*time.Second, time.Minute)
)

// handBackPatience is for how long handing back is tried.
const handBackPatience = 2 * time.Second

// stored tells of what the store has taken. Acknowledged messages that are not done yet are held until then.
func (s *Sender) stored(words []delivery.Outcome, results []halfmsg.Result, until time.Time) {
	var acked, marked []halfmsg.Claim
	for i := range words {
		w := &words[i]
		if results[i].Err != nil {
			continue
		}
		switch w.Event {
		case halfmsg.EventAcked:
			s.config.Metrics.Acked(&w.Claim)
			acked = append(acked, w.Claim)
		case halfmsg.EventAckedMarked:
			s.config.Metrics.Acked(&w.Claim)
			marked = append(marked, acknowledged(w.Claim))
		case halfmsg.EventExhausted:
			s.config.Logger.Warn("a message is dead: the broker refused it too often", "message", w.Name,
				"attempts", w.PublishAttempts+1, "reason", w.Cause)
		default: // it waits for its next turn
		}
	}
	if len(acked) > 0 {
		s.config.Pipeline.Acknowledged(acked)
	}
	if len(marked) > 0 {
		s.config.Pipeline.AcknowledgedMarked(marked, until)
	}
}

// acknowledged is a claim after the acknowledgement was stored under it.
func acknowledged(claim halfmsg.Claim) halfmsg.Claim {
	claim.State = halfmsg.Acknowledged
	return claim
}

func publishing(claim halfmsg.Claim, again int) halfmsg.Publishing {
	return halfmsg.Publishing{
		Name:        claim.Name,
		Exchange:    claim.Exchange,
		RoutingKey:  claim.RoutingKey,
		ContentType: claim.ContentType,
		Headers:     claim.Headers,
		Body:        claim.Body,
		Trace:       claim.Trace,
		SendableAt:  claim.SendableAt,
		Attempt:     claim.Copies + 1 + again,
	}
}

// outcomeOf is what an outcome means for a message.
func (s *Sender) outcomeOf(h delivery.Leased, result halfmsg.PublishResult) delivery.Outcome {
	w := delivery.Outcome{Leased: h, Cause: delivery.CauseOf(result.Cause)}
	switch result.Outcome {
	case halfmsg.Acked:
		w.Event, w.Cause = halfmsg.EventAcked, ""
		if s.config.DeleteAfterAck {
			w.Event, w.Hold = halfmsg.EventAckedMarked, s.config.Lease
		}
	case halfmsg.Refused:
		w.Event, w.After = halfmsg.EventRefused, s.config.Backoff.Delay(h.PublishAttempts)
		if h.PublishAttempts >= len(s.config.Backoff) {
			w.Event, w.After = halfmsg.EventExhausted, 0
		}
	case halfmsg.Unsent:
		w.Event, w.After = halfmsg.EventReleased, s.pauseUnsent(time.Since(h.SendableAt))
	default: // whatever else a publisher says, a copy may be out
		w.Event, w.After = halfmsg.EventUnsure, unsure.Delay(h.Copies)
	}
	return w
}

// deadCopy is the copy of a message for the dead-letter exchange.
func (s *Sender) deadCopy(w *delivery.Outcome) halfmsg.Publishing {
	p := publishing(w.Claim, 1)
	p.Headers = maps.Clone(p.Headers)
	if p.Headers == nil {
		p.Headers = map[string]string{}
	}
	p.Headers[HeaderReason] = w.Cause
	p.Headers[HeaderAttempts] = strconv.Itoa(w.PublishAttempts + 1)
	p.Headers[HeaderExchange] = w.Exchange
	p.Headers[HeaderKey] = w.RoutingKey
	p.Exchange = s.config.DeadLetterExchange
	return p
}

// handBack gives messages back to the store, due at once.
func (s *Sender) handBack(held []delivery.Leased) {
	words := make([]delivery.Outcome, len(held))
	for i, h := range held {
		words[i] = delivery.Outcome{Leased: h, Event: halfmsg.EventReleased}
	}
	s.giveUp(words)
}

// postpone gives messages back to the store, due when the broker may be back.
func (s *Sender) postpone(held []delivery.Leased) {
	cause := ""
	if err := s.config.Publisher.Ready(); err != nil {
		cause = delivery.CauseOf(err)
	}
	s.giveUp(s.unsent(held, cause))
}

// giveUp stores that messages were handed back. Callers wait for it and the leases end by themselves, so it is not
// tried for long.
func (s *Sender) giveUp(words []delivery.Outcome) {
	ctx, cancel := context.WithTimeout(s.calls, handBackPatience)
	defer cancel()
	s.settler.Settle(ctx, words, func([]delivery.Outcome, []halfmsg.Result) {})
}

func (s *Sender) unsent(held []delivery.Leased, cause string) []delivery.Outcome {
	words := make([]delivery.Outcome, len(held))
	for i, h := range held {
		words[i] = delivery.Outcome{Leased: h, Event: halfmsg.EventReleased, After: s.pauseUnsent(0), Cause: cause}
	}
	return words
}

// pauseUnsent is how long a message waits that never left, the longer the older it is if the broker takes others; not
// at all while closing, for another instance may send it.
func (s *Sender) pauseUnsent(age time.Duration) time.Duration {
	away := s.config.Publisher.Ready() != nil
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return 0
	case away:
		return unsent.Delay(0)
	}
	return unsent.DelayAfter(age)
}
