package sqloutbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
	"github.com/msghandler/msghandler/internal/sendloop"
	"github.com/msghandler/msghandler/internal/server"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// sender publishes the rows of one broker as the send loop publishes half messages: the same rules for what a message
// may be, the same attempts, and the same copies of dead messages.
type sender struct {
	config Config
	// name is the broker's name in rows; empty is the default broker.
	name   string
	broker sendloop.Broker
	// named are the brokers that a row may name, sorted.
	named []string
	// failures gathers the log lines about messages.
	failures *loglimit.Gatherer
}

func newSender(config Config, broker string, failures *loglimit.Gatherer) *sender {
	named := slices.Sorted(maps.Keys(config.Brokers))
	named = slices.DeleteFunc(named, func(name string) bool { return name == "" })
	return &sender{config, broker, config.Brokers[broker], named, failures}
}

// Ready implements outbox.Readier.
func (s *sender) Ready() error { return s.broker.Publisher.Ready() }

// Send implements outbox.Sender. A panic of the publisher refuses what has no result, so that a poison message fails in
// the end.
func (s *sender) Send(ctx context.Context, messages []sqlmarker.Queued) []outbox.Result {
	p := &batch{sender: s, messages: messages, results: make([]outbox.Result, len(messages))}
	for i := range messages {
		if refusal := s.judgeRow(&messages[i]); refusal != nil {
			p.results[i] = *refusal
			continue
		}
		p.places = append(p.places, i)
	}
	if len(p.places) == 0 {
		return p.results
	}
	failure := lifecycle.Recovered(func() {
		p.publish(ctx)
		p.copyDead(ctx)
	})
	if failure != nil {
		s.config.Logger.Error("publishing panicked; the messages count as refused; see the stack",
			"cause", failure, "stack", string(failure.Stack))
		p.refuseRest(outbox.Result{Fate: outbox.Refused, Err: fmt.Errorf("publishing panicked: %w", failure)})
	}
	return p.results
}

// judgeRow is the result of a row that is not to be published: it is no valid message, or its delay is not over.
func (s *sender) judgeRow(q *sqlmarker.Queued) *outbox.Result {
	m := &q.Message
	if q.Unreadable != nil {
		return &outbox.Result{Fate: outbox.Refused, Err: q.Unreadable, Final: true}
	}
	err := server.CheckMessage(&msghandlerv1.Message{
		Id: m.ID, Broker: m.Broker, Exchange: m.Exchange, RoutingKey: m.RoutingKey, ContentType: m.ContentType,
		Headers: m.Headers, Body: m.Body, Delay: durationpb.New(m.Delay),
	}, s.config.MaxBody, s.named)
	if err != nil {
		return &outbox.Result{Fate: outbox.Refused, Err: err, Final: true}
	}
	// The policy may be another one soon: the row keeps its attempts.
	err = s.config.Forbidden(m.Broker, m.Exchange, m.RoutingKey)
	switch {
	case err != nil:
		return &outbox.Result{Fate: outbox.Refused, Err: err}
	case q.Age < m.Delay:
		return &outbox.Result{Fate: outbox.Early, In: m.Delay - q.Age}
	}
	return nil
}

// batch are the messages of one Send.
type batch struct {
	sender   *sender
	messages []sqlmarker.Queued
	// places are the messages to publish, and results has the results of all.
	places  []int
	results []outbox.Result
}

// refuseRest gives a result to every message without one.
func (p *batch) refuseRest(result outbox.Result) {
	for _, i := range p.places {
		if p.results[i] == (outbox.Result{}) {
			p.results[i] = result
		}
	}
}

// publish sends the messages, and leaves time for copies of dead ones.
func (p *batch) publish(ctx context.Context) {
	if p.sender.broker.DeadLetterExchange != "" {
		deadline, _ := ctx.Deadline() // the relay sets one
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-p.sender.config.Send.ConfirmTimeout*3/2))
		defer cancel()
	}
	all := make([]halfmsg.Publishing, len(p.places))
	for n, i := range p.places {
		all[n] = p.publishing(i)
	}
	p.sender.broker.Publisher.Publish(ctx, all, func(places []int, results []halfmsg.PublishResult) {
		for n, place := range places {
			p.results[p.places[place]] = p.sender.resultOf(results[n])
			p.count(all[place].Exchange, results[n])
		}
	})
}

// count counts a message as the send loop counts.
func (p *batch) count(exchange string, result halfmsg.PublishResult) {
	if result.Outcome != halfmsg.Acked {
		p.sender.config.Traffic.Failed(p.sender.name, exchange, result.Cause)
	}
	p.sender.config.Traffic.Published(p.sender.name, exchange, result.Outcome, 1)
}

func (p *batch) publishing(i int) halfmsg.Publishing {
	q := &p.messages[i]
	return halfmsg.Publishing{
		Name:        halfmsg.Name{Producer: p.sender.config.Settings.Producer, ID: q.Message.ID},
		Exchange:    q.Message.Exchange,
		RoutingKey:  q.Message.RoutingKey,
		ContentType: q.Message.ContentType,
		Headers:     q.Message.Headers,
		Body:        q.Message.Body,
		DueAt:       q.DueAt(),
		Attempt:     q.Claims,
	}
}

// stalledPause is when rows are offered again whose exchange or queue does not confirm.
const stalledPause = 15 * time.Second

// resultOf is what the broker's answer means for a row. A broker that is ready and has not got the row has trouble with
// the row's exchange or queue alone: the row makes room for others.
func (s *sender) resultOf(r halfmsg.PublishResult) outbox.Result {
	switch r.Outcome {
	case halfmsg.Acked:
		return outbox.Result{Fate: outbox.Sent}
	case halfmsg.Refused:
		return outbox.Result{Fate: outbox.Refused, Err: r.Cause}
	case halfmsg.Unsent:
		if s.Ready() == nil {
			return outbox.Result{Fate: outbox.Early, In: stalledPause, Err: r.Cause}
		}
		return outbox.Result{Fate: outbox.Unreached, Err: r.Cause, Unsent: true}
	default: // a copy may be out
		return outbox.Result{Fate: outbox.Unreached, Err: r.Cause}
	}
}

// copyDead copies messages that are about to fail to the dead-letter exchange. Neither a refused copy, nor one without
// an answer, nor one for which no time is left stops anything: the table keeps the message. The message waits while the
// broker is away, and when the relay stops.
func (p *batch) copyDead(ctx context.Context) {
	if p.sender.broker.DeadLetterExchange == "" {
		return
	}
	var dying []int
	for _, i := range p.places {
		if p.results[i].Fate == outbox.Refused && p.messages[i].Attempts >= len(p.sender.config.Send.Backoff) {
			dying = append(dying, i)
		}
	}
	if len(dying) == 0 {
		return
	}
	copies, results := make([]halfmsg.Publishing, len(dying)), make([]halfmsg.PublishResult, len(dying))
	for n, i := range dying {
		copies[n] = p.deadCopy(i)
	}
	p.sender.broker.Publisher.Publish(ctx, copies, func(places []int, some []halfmsg.PublishResult) {
		for n, place := range places {
			results[place] = some[n]
		}
	})
	for n, i := range dying {
		text := "dead-letter exchange refused copies: the messages have failed without a copy; check the exchange"
		switch {
		case results[n].Outcome == halfmsg.Acked:
			continue
		case results[n].Outcome == halfmsg.Refused:
		case p.sender.Ready() != nil || errors.Is(ctx.Err(), context.Canceled):
			p.results[i] = outbox.Result{Fate: outbox.Unreached, Err: p.results[i].Err}
			continue
		default:
			text = "dead-letter exchange did not answer for copies: the messages have failed, maybe without a copy; " +
				"check the queues of the exchange"
		}
		p.sender.failures.Add(loglimit.Failure{
			Level: slog.LevelError, Text: text, Producer: p.messages[i].Producer,
			Exchange: p.sender.broker.DeadLetterExchange, MessageID: p.messages[i].Name(),
			Cause: fmt.Sprint(results[n].Cause),
		})
	}
}

// deadCopy is the copy of a message for the dead-letter exchange.
func (p *batch) deadCopy(i int) halfmsg.Publishing {
	dead := p.publishing(i)
	dead.Headers = maps.Clone(dead.Headers)
	if dead.Headers == nil {
		dead.Headers = map[string]string{}
	}
	dead.Headers[sendloop.HeaderReason] = p.results[i].Err.Error()
	dead.Headers[sendloop.HeaderAttempts] = strconv.Itoa(p.messages[i].Attempts + 1)
	dead.Headers[sendloop.HeaderExchange] = dead.Exchange
	dead.Headers[sendloop.HeaderKey] = dead.RoutingKey
	dead.Exchange = p.sender.broker.DeadLetterExchange
	dead.Publication, dead.Dead = fmt.Sprintf("dead-%d", dead.Attempt), true
	dead.Attempt++
	return dead
}
