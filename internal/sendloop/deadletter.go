package sendloop

import (
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
)

// The headers that a copy on the dead-letter exchange has besides the headers of its message.
const (
	// HeaderReason is the broker's latest refusal, at most halfmsg.MaxCause characters.
	HeaderReason = "msghandler-dead-reason"
	// HeaderAttempts is how often the broker refused the message.
	HeaderAttempts = "msghandler-dead-attempts"
	// HeaderExchange is the exchange of the message. The copy keeps the routing key, which is in HeaderKey too.
	HeaderExchange = "msghandler-origin-exchange"
	// HeaderKey is the routing key of the message.
	HeaderKey = "msghandler-origin-routing-key"
)

// dying splits outcomes into those whose messages are copied before they become DEAD, and the others.
func (p *publication) dying(outcomes []delivery.Outcome) (dying, others []delivery.Outcome) {
	if p.stage.broker.DeadLetterExchange == "" {
		return nil, outcomes
	}
	for i := range outcomes {
		if outcomes[i].Event == halfmsg.EventExhausted {
			dying = append(dying, outcomes[i])
		}
	}
	if len(dying) == 0 {
		return nil, outcomes
	}
	for i := range outcomes {
		if outcomes[i].Event != halfmsg.EventExhausted {
			others = append(others, outcomes[i])
		}
	}
	return dying, others
}

// copyDead copies the messages that are about to become DEAD to the dead-letter exchange. Without an acknowledgement of
// the copy the message is postponed instead, and so is a message whose lease may end before the answer. A refused copy
// stops nothing: the store keeps the message.
func (p *publication) copyDead(outcomes []delivery.Outcome) {
	copies := make([]halfmsg.Publishing, 0, len(outcomes))
	var of []int
	latest := time.Now().Add(p.sender.config.Margin)
	for i := range outcomes {
		if outcomes[i].Until.After(latest) {
			of, copies = append(of, i), append(copies, p.stage.deadCopy(&outcomes[i]))
		}
	}
	results := make([]halfmsg.PublishResult, len(outcomes)) // without a result the copy did not arrive either
	if failure := lifecycle.Recovered(func() {
		p.stage.broker.Publisher.Publish(p.sender.calls, copies, func(places []int, some []halfmsg.PublishResult) {
			for n, i := range places {
				results[of[i]] = some[n]
			}
		})
	}); failure != nil {
		p.sender.config.Logger.Error("dead-letter copies panicked: the messages are published again; see the stack",
			"messages", len(copies), "cause", failure, "stack", string(failure.Stack))
	}
	for i := range outcomes {
		o := &outcomes[i]
		switch results[i].Outcome {
		case halfmsg.Acked:
		case halfmsg.Refused:
			p.sender.failures.Add(loglimit.Failure{
				Level:    slog.LevelError,
				Text:     "dead-letter exchange refused copies: the messages are DEAD without a copy; check the exchange",
				Producer: o.Producer, Exchange: p.stage.broker.DeadLetterExchange, MessageID: o.Name.String(),
				Cause: delivery.CauseOf(results[i].Cause), More: []slog.Attr{slog.String("broker", o.Broker)},
			})
		default:
			o.Event, o.After = halfmsg.EventRefused, p.sender.config.Backoff.Delay(o.PublishAttempts)
		}
	}
}

// deadCopy is the copy of a message for the dead-letter exchange.
func (s *brokerStage) deadCopy(o *delivery.Outcome) halfmsg.Publishing {
	p := publishing(o.Claim, 1)
	// A message may become DEAD more than once, each time after a further copy.
	p.Publication = fmt.Sprintf("dead-%d-%d", o.CreatedAt.UnixMilli(), o.Copies+1)
	p.Headers = maps.Clone(p.Headers)
	if p.Headers == nil {
		p.Headers = map[string]string{}
	}
	p.Headers[HeaderReason] = o.Cause
	p.Headers[HeaderAttempts] = strconv.Itoa(o.PublishAttempts + 1)
	p.Headers[HeaderExchange] = o.Exchange
	p.Headers[HeaderKey] = o.RoutingKey
	p.Exchange = s.broker.DeadLetterExchange
	return p
}
