package sendloop

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/ground/backoff"
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

// copyTries bounds the copies of a dying message, and copyPauses are the waits before the next.
const copyTries = 3

var copyPauses = backoff.Exponential(time.Second, 4*time.Second)

// copyDead copies the messages that are about to become DEAD to the dead-letter exchange. A copy without an answer is
// repeated alone, a few times, while the lease lasts. Neither a refused copy nor one without an answer keeps a message
// from DEAD: the store keeps the message. A message is released while the broker takes no messages, and where its
// lease is too short for a copy.
func (p *publication) copyDead(outcomes []delivery.Outcome) {
	open := make([]int, len(outcomes))
	for i := range open {
		open[i] = i
	}
	results := make([]halfmsg.PublishResult, len(outcomes))
	tried := make([]bool, len(outcomes))
	for try := 0; try < copyTries && len(open) > 0; try++ {
		if try > 0 && (backoff.Sleep(p.sender.calls, copyPauses.Delay(try-1)) != nil || p.away()) {
			break
		}
		p.copyOnce(outcomes, open, try, results, tried)
		open = slices.DeleteFunc(open, func(i int) bool {
			return results[i].Outcome == halfmsg.Acked || results[i].Outcome == halfmsg.Refused
		})
	}
	for i := range outcomes {
		p.judgeCopy(&outcomes[i], results[i], tried[i])
	}
}

// away reports that the broker takes no messages now, or that the stage stops.
func (p *publication) away() bool {
	return p.sender.calls.Err() != nil || p.stage.broker.Publisher.Ready() != nil
}

// copyOnce publishes a copy of each message at the open places whose lease lasts until the answer.
func (p *publication) copyOnce(
	outcomes []delivery.Outcome, open []int, try int, results []halfmsg.PublishResult, tried []bool,
) {
	var copies []halfmsg.Publishing
	var of []int
	latest := time.Now().Add(p.sender.config.Margin)
	for _, i := range open {
		if outcomes[i].Until.After(latest) {
			assert.Always(outcomes[i].Token != "", "a dead-letter copy is published by the lease holder",
				outcomes[i].Producer, outcomes[i].ID)
			of, copies, tried[i] = append(of, i), append(copies, p.stage.deadCopy(&outcomes[i], try)), true
		}
	}
	if len(copies) == 0 {
		return
	}
	if failure := lifecycle.Recovered(func() {
		p.stage.broker.Publisher.Publish(p.sender.calls, copies, func(places []int, some []halfmsg.PublishResult) {
			for n, i := range places {
				results[of[i]] = some[n]
			}
		})
	}); failure != nil {
		p.sender.config.Logger.Error("dead-letter copies panicked: their outcome is unknown; see the stack",
			"messages", len(copies), "cause", failure, "stack", string(failure.Stack))
	}
}

// judgeCopy lets a message become DEAD, or releases it.
func (p *publication) judgeCopy(o *delivery.Outcome, result halfmsg.PublishResult, tried bool) {
	assert.Always(o.Event == halfmsg.EventExhausted && o.PublishAttempts >= len(p.sender.config.Backoff),
		"a message is DEAD only after its last attempt was refused", o.Producer, o.ID)
	text := "dead-letter exchange refused copies: the messages are DEAD without a copy; check the exchange"
	switch {
	case result.Outcome == halfmsg.Acked:
		return
	case result.Outcome == halfmsg.Refused:
	case !tried || p.away():
		o.Event, o.After = halfmsg.EventUnsure, unsurePause.Delay(o.Copies)
		return
	default:
		text = "dead-letter exchange did not answer for copies: the messages are DEAD, maybe without a copy; " +
			"check the queues of the exchange"
	}
	p.sender.failures.Add(loglimit.Failure{
		Level: slog.LevelError, Text: text, Producer: o.Producer, Exchange: p.stage.broker.DeadLetterExchange,
		MessageID: o.Name.String(), Cause: delivery.CauseOf(result.Cause),
		More: []slog.Attr{slog.String("broker", o.Broker)},
	})
}

// deadCopy is the copy of a message for the dead-letter exchange.
func (s *brokerStage) deadCopy(o *delivery.Outcome, try int) halfmsg.Publishing {
	p := publishing(o.Claim, 1+try)
	// A message may become DEAD more than once, each time after a further copy.
	p.Publication, p.Dead = fmt.Sprintf("dead-%d-%d", o.CreatedAt.UnixMilli(), o.Copies+1), true
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
