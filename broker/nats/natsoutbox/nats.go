// Package natsoutbox sends a producer's local message table straight to NATS JetStream, without a coordinator: the
// plain outbox, with the same messages and the same consumers.
//
// The exchange of a message is the stream, and the routing key the subject. A message is sent when the stream has sent
// a PubAck. A message to an unknown stream, or a message that the stream does not take, is refused, and tried again
// after a delay. After the loss of a connection the messages in flight are sent once more, as the stream may or may not
// have them: within the stream's window JetStream drops the second copy by its Nats-Msg-Id, PRODUCER/ID. Every copy
// after the first has a msghandler-attempt header above 1.
package natsoutbox

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

const (
	// ioTimeout bounds reaching a server, and every write.
	ioTimeout = 5 * time.Second
	// answerTimeout bounds the wait for PubAcks. A stream without a leader answers nothing for some seconds, and must not
	// hold its batch for the whole time of the claim.
	answerTimeout = 10 * time.Second
)

// Config says which servers. URL and Producer must be given.
type Config struct {
	// URL is nats://USER:PASSWORD@HOST:PORT,HOST:PORT or tls://...; the options after the ? are token, credsfile,
	// cacertfile, certfile, keyfile, skip_verify, tls and inbox_prefix.
	URL string
	// TLS is used for addresses with TLS; nil is what the URL says.
	TLS *tls.Config
	// Producer is the producer's name, which messages carry.
	Producer string
}

// Sender is an outbox.Sender. A sender belongs to one relay.
type Sender struct {
	config  Config
	address address.NATS
	streams natsconn.Streams
	link    *link // nil: not connected
}

// New returns a sender. The sender connects with the first batch.
func New(config Config) (*Sender, error) {
	where, err := address.ParseNATS(config.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("outbox nats.Config: URL %w", err)
	case config.Producer == "":
		return nil, errors.New("outbox nats.Config: Producer is missing; give the producer's name")
	}
	return &Sender{config: config, address: where}, nil
}

// Close closes the connection. Call it after the relay's Run has returned.
func (s *Sender) Close() {
	if s.link == nil {
		return
	}
	s.link.close()
	s.link = nil
	_ = s.streams.Wait(context.Background()) // lookups end with their connection
}

// Send implements outbox.Sender.
func (s *Sender) Send(ctx context.Context, messages []sql.Queued) []outbox.Result {
	results := make([]outbox.Result, len(messages))
	if err := s.connect(ctx); err != nil {
		for i := range results {
			results[i].Err, results[i].Unsent = err, true
		}
		return results
	}
	s.link.begin()
	defer context.AfterFunc(ctx, s.link.conn.Close)() // a hanging write ends with the time of the batch
	publishings := make([]*publishing, len(messages))
	for i := range messages {
		publishings[i], results[i] = s.publish(&messages[i])
	}
	answers, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	// Neither a slow answer nor the lookup of a stream delays another message.
	var judging sync.WaitGroup
	for i, p := range publishings {
		if p != nil {
			judging.Go(func() { results[i] = s.judge(ctx, p, s.link.await(answers, p)) })
		}
	}
	judging.Wait()
	return results
}

// connect opens a connection, unless one is open.
func (s *Sender) connect(ctx context.Context) error {
	if s.link != nil && s.link.conn.IsConnected() {
		return nil
	}
	s.Close()
	l, err := dial(ctx, s.address, s.config)
	if err != nil {
		return err
	}
	s.link = l
	s.streams.Forget()
	return nil
}

// publishing is a message on its way.
type publishing struct {
	message natsconn.Message
	future  jetstream.PubAckFuture
}

// publish sends one message, unless the delay of the message is not over: without a coordinator the table keeps the
// delay.
func (s *Sender) publish(q *sql.Queued) (*publishing, outbox.Result) {
	m := natsconn.Message{
		Producer: s.config.Producer, ID: q.Message.ID, Stream: q.Message.Exchange, Subject: q.Message.RoutingKey,
		ContentType: q.Message.ContentType, Headers: q.Message.Headers, Body: q.Message.Body, Time: q.DueAt(),
		Attempt: q.Claims,
	}
	if err := cmp.Or(q.Unreadable, m.Check(), outbox.ForCoordinator(&q.Message), s.streams.Refusal(m.Stream)); err != nil {
		return nil, result(&m, outbox.Refused, err)
	}
	if q.Age < q.Message.Delay {
		return nil, outbox.Result{Fate: outbox.Early, In: q.Message.Delay - q.Age}
	}
	future, err := s.link.js.PublishMsgAsync(m.NATS(), jetstream.WithRetryAttempts(0), jetstream.WithStallWait(ioTimeout))
	if err == nil {
		return &publishing{message: m, future: future}, outbox.Result{}
	}
	fate, cause := natsconn.JudgeUnwritten(err)
	if fate == natsconn.Unknown {
		s.link.conn.Close()
	}
	return nil, resultOf(&m, fate, cause)
}

// judge turns the answer into a result.
func (s *Sender) judge(ctx context.Context, p *publishing, err error) outbox.Result {
	if natsconn.Forbidden(err) != "" {
		return result(&p.message, outbox.Refused, err)
	}
	if errors.Is(err, errUnanswered) {
		s.streams.NoteSilence(ctx, s.link.js, p.message.Stream)
	}
	fate, cause := natsconn.Judge(err)
	if fate == natsconn.Untaken {
		refused, why := s.streams.Untaken(ctx, s.link.js, p.message.Stream, p.message.Subject)
		if fate, cause = natsconn.Unavailable, why; refused {
			fate = natsconn.Refused
		}
	}
	return resultOf(&p.message, fate, cause)
}

func resultOf(m *natsconn.Message, fate natsconn.Fate, cause error) outbox.Result {
	switch fate {
	case natsconn.Stored:
		return outbox.Result{Fate: outbox.Sent}
	case natsconn.Refused:
		return result(m, outbox.Refused, cause)
	default:
		r := result(m, outbox.Unreached, cause)
		r.Unsent = fate == natsconn.Unavailable
		return r
	}
}

func result(m *natsconn.Message, fate outbox.Fate, cause error) outbox.Result {
	return outbox.Result{Fate: fate, Err: fmt.Errorf("publish %s: %w", m.ID, cause)}
}
