// Package rabbitmqoutbox sends a producer's local message table straight to RabbitMQ, without a coordinator: the plain
// outbox, with the same messages and the same consumers.
//
// A message is sent when the broker has acknowledged it and routed it to at least one queue. A message that the
// broker returns as unroutable or nacks is refused, and tried again after a delay. After the loss of a connection the
// messages in flight are sent once more, as the broker may or may not have them. Every copy after the first has
// a msghandler-attempt header above 1.
package rabbitmqoutbox

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

// ioTimeout bounds dialling, and every write: a broker under an alarm stops reading, and a hanging write would hold the
// relay.
const ioTimeout = 5 * time.Second

// Config says which broker. URL and Producer must be given.
type Config struct {
	// URL is amqp://USER:PASSWORD@HOST:PORT/VHOST or amqps://...
	URL string
	// TLS is used for amqps; nil is Go's default.
	TLS *tls.Config
	// Producer is the producer's name; messages carry it as their app_id.
	Producer string
}

// Sender is an outbox.Sender. A sender belongs to one relay.
type Sender struct {
	config  Config
	conn    *amqpconn.Conn
	channel *amqp.Channel
	returns chan amqp.Return
	closed  chan *amqp.Error
	routes  *publish.Routes
}

// New returns a sender. The sender connects with the first batch.
func New(config Config) (*Sender, error) {
	// The parser's error may quote the password.
	if _, err := amqp.ParseURI(config.URL); err != nil {
		return nil, errors.New("outbox rabbitmq.Config: URL is not of the form amqp://USER:PASSWORD@HOST:PORT/VHOST, " +
			"special characters as %XX")
	}
	if config.Producer == "" {
		return nil, errors.New("outbox rabbitmq.Config: Producer is missing; give the producer's name")
	}
	return &Sender{config: config, routes: publish.NewRoutes(probePauses)}, nil
}

// Close closes the connection. Call it after the relay's Run has returned.
func (s *Sender) Close() {
	if s.conn == nil {
		return
	}
	s.conn.CloseWithin(ioTimeout)
	s.conn, s.channel = nil, nil
}

// Send implements outbox.Sender. While a route (exchange and routing key) stalls, its messages are Early, except for
// one probe after each pause.
func (s *Sender) Send(ctx context.Context, messages []sql.Queued) []outbox.Result {
	places, results := s.hold(messages)
	if len(places) == 0 {
		return results
	}
	going := make([]sql.Queued, len(places))
	for n, i := range places {
		going[n] = messages[i]
	}
	gone := s.send(ctx, going)
	s.learn(ctx, going, gone)
	for n, i := range places {
		results[i] = gone[n]
	}
	return results
}

// send sends messages. The broker rejects a message, such as a message to a missing exchange, by closing the channel
// with all messages in flight. Then each is sent isolated, so that the rejected message does not hold the others up.
// Other messages to a rejected exchange are refused with the same reason: each try would cost a connection.
func (s *Sender) send(ctx context.Context, messages []sql.Queued) []outbox.Result {
	results, rejection := s.batch(ctx, messages)
	if rejection == nil || len(messages) == 1 {
		return results
	}
	for i := range messages {
		if results[i].Fate != outbox.Unreached {
			continue
		}
		if ctx.Err() != nil {
			break // the claim ends soon, and the results so far must be stored before
		}
		if err := s.routes.Rejection(messages[i].Message.Exchange); err != nil {
			results[i] = refused(messages[i], err)
			continue
		}
		again := messages[i]
		again.Claims++ // the broker may have a copy from the first time
		isolated, _ := s.batch(ctx, []sql.Queued{again})
		results[i] = isolated[0]
		results[i].Unsent = false
	}
	return results
}

// batch sends messages on one channel. The rejection is why the broker closed the channel, if the broker did.
func (s *Sender) batch(ctx context.Context, messages []sql.Queued) (results []outbox.Result, rejection *amqp.Error) {
	results = make([]outbox.Result, len(messages))
	if err := s.connect(ctx, len(messages)); err != nil {
		for i := range results {
			results[i].Err, results[i].Unsent = err, true
		}
		return results, nil
	}
	confirmations := make([]*amqp.DeferredConfirmation, len(messages))
	for i, q := range messages {
		confirmations[i], results[i] = s.publish(ctx, q)
	}
	returned := map[string]amqp.Return{}
	for i, confirmation := range confirmations {
		if confirmation == nil {
			continue
		}
		acknowledged, err := amqpconn.Answer(ctx, confirmation)
		// The broker returns a message before the acknowledgement, so the return is here by now.
		s.drain(returned)
		results[i] = s.judge(messages[i], acknowledged, err, returned)
	}
	if !s.channel.IsClosed() && ctx.Err() == nil {
		return results, nil
	}
	rejection = s.whyClosed()
	defer context.AfterFunc(ctx, s.conn.HangUp)() // the farewell has no more time than the rest
	s.Close()                                     // no call waits for late answers on the old channel
	if rejection != nil && len(messages) == 1 && results[0].Fate == outbox.Unreached {
		results[0] = refused(messages[0], rejection)
		if amqpconn.RejectsExchange(rejection) {
			s.routes.Reject(messages[0].Message.Exchange, rejection)
		}
	}
	return results, rejection
}

func refused(q sql.Queued, why error) outbox.Result {
	return outbox.Result{Fate: outbox.Refused, Err: fmt.Errorf("publish %s: %w", q.Message.ID, why)}
}

// whyClosed is why the broker closed the channel because of a message; nil if the channel is open or ended otherwise.
func (s *Sender) whyClosed() *amqp.Error {
	if !s.channel.IsClosed() {
		return nil
	}
	// The library sends the reason, or closes s.closed, right after the end of the channel.
	if reason := <-s.closed; reason != nil && reason.Server && reason.Code != amqp.ConnectionForced {
		return reason
	}
	return nil
}

// connect opens a connection and a channel with confirms and returns, unless they are open. The Go channel of returns
// holds a whole batch, because a listener that blocks loses returns.
func (s *Sender) connect(ctx context.Context, batch int) error {
	if s.channel != nil && !s.channel.IsClosed() && cap(s.returns) >= batch {
		return nil
	}
	s.Close()
	conn, err := amqpconn.Dial(ctx, s.config.URL, amqpconn.Config{
		Name: "outbox " + s.config.Producer, TLS: s.config.TLS,
		Heartbeat: ioTimeout, DialTimeout: ioTimeout, WriteTimeout: ioTimeout,
	})
	if err != nil {
		return fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	s.conn = conn
	defer context.AfterFunc(ctx, conn.HangUp)()
	defer conn.Guard(ioTimeout)()
	if s.channel, err = conn.Channel(); err == nil {
		err = s.channel.Confirm(false)
	}
	if err != nil {
		s.Close()
		return fmt.Errorf("open a channel of RabbitMQ: %w", err)
	}
	s.returns = s.channel.NotifyReturn(make(chan amqp.Return, max(batch, 1)))
	s.closed = s.channel.NotifyClose(make(chan *amqp.Error, 1))
	return nil
}

// publish sends one message, unless the delay of the message is not over: without a coordinator the table keeps the
// delay.
func (s *Sender) publish(ctx context.Context, q sql.Queued) (*amqp.DeferredConfirmation, outbox.Result) {
	m := q.Message
	err := unsendable(q)
	switch {
	case err != nil:
		return nil, outbox.Result{Fate: outbox.Refused, Err: err}
	case q.Age < m.Delay:
		return nil, outbox.Result{Fate: outbox.Early, In: m.Delay - q.Age}
	}
	headers := amqp.Table{}
	for key, value := range m.Headers {
		headers[key] = value
	}
	headers[publish.HeaderAttempt] = int64(q.Claims) // also in place of a caller's: consumers rely on the number
	confirmation, err := s.channel.PublishWithDeferredConfirmWithContext(ctx, m.Exchange, m.RoutingKey, true, false,
		amqp.Publishing{
			MessageId: m.ID, AppId: s.config.Producer, Timestamp: q.DueAt(), DeliveryMode: amqp.Persistent,
			ContentType: m.ContentType, Headers: headers, Body: m.Body,
		})
	if err != nil {
		// The connection has ended; the channel may not know yet.
		return nil, outbox.Result{Fate: outbox.Unreached, Err: fmt.Errorf("publish %s: %w", m.ID, err)}
	}
	return confirmation, outbox.Result{}
}

// unsendable says why a message cannot be sent at all.
func unsendable(q sql.Queued) error { return cmp.Or(q.Unreadable, unfit(q.Message)) }

// longest is how many bytes AMQP has for a name.
const longest = 255

// unfit says why AMQP cannot carry a message, where the try would cost the connection, or why the message is not for
// this broker.
func unfit(m producer.Message) error {
	if err := outbox.ForCoordinator(&m); err != nil {
		return fmt.Errorf("publish %s: %w", m.ID, err)
	}
	names := []string{m.ID, m.Exchange, m.RoutingKey, m.ContentType}
	for name := range m.Headers {
		names = append(names, name)
	}
	for _, name := range names {
		if len(name) > longest {
			return fmt.Errorf("publish %s: %.40q... has %d bytes, and AMQP takes names of at most %d",
				m.ID, name, len(name), longest)
		}
	}
	return nil
}

func (s *Sender) drain(returned map[string]amqp.Return) {
	for {
		select {
		case r, open := <-s.returns:
			if !open {
				return
			}
			returned[r.MessageId] = r
		default:
			return
		}
	}
}

// judge turns the broker's answer into a result. A confirmation without an acknowledgement is a nack or the end of the
// channel; the end is known by then.
func (s *Sender) judge(q sql.Queued, acknowledged bool, err error, returned map[string]amqp.Return) outbox.Result {
	id := q.Message.ID
	r, unroutable := returned[id]
	switch {
	case unroutable:
		return refused(q, fmt.Errorf("returned: %d %s", r.ReplyCode, r.ReplyText))
	case err != nil:
		return outbox.Result{Err: fmt.Errorf("publish %s: %w: %w", id, errUnanswered, err)}
	case acknowledged:
		return outbox.Result{Fate: outbox.Sent}
	case s.channel.IsClosed():
		return outbox.Result{Err: fmt.Errorf("publish %s: the connection broke before the broker answered", id)}
	}
	return refused(q, errors.New("the broker refused it (nack)"))
}
