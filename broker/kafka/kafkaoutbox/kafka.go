// Package kafkaoutbox sends a producer's local message table straight to Kafka, without a coordinator: the plain
// outbox, with the same messages and the same consumers.
//
// The exchange of a message is the topic, and the routing key is the key of the record. A message is sent when all
// in-sync replicas have the record. A message that the cluster does not take, as for a missing topic, is refused, and
// tried again after a delay. A message without an answer is sent once more, as a broker may have it. Every copy after
// the first has a msghandler-attempt header above 1.
package kafkaoutbox

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

const (
	// reachTimeout is how long the cluster may take to answer before a batch.
	reachTimeout = 3 * time.Second
	// answerTimeout is how long a broker may take for a produce request.
	answerTimeout = 5 * time.Second
	// window is how many messages may be on their way: more than the batch of any sensible relay.
	window = 10_000
	// besideProbe is when messages are offered again whose topic another message probes.
	besideProbe = 5 * time.Second
)

// probePauses are the pauses between the probes of a stalled topic: a probe holds its whole batch until the batch's
// time is over.
var probePauses = backoff.Exponential(30*time.Second, 2*time.Minute)

// Config says which cluster. URL and Producer must be given.
type Config struct {
	// URL is kafka://USER:PASSWORD@HOST:PORT,HOST:PORT with options: tls, ca, cert, key, skip_verify, sasl (plain,
	// scram-sha-256, scram-sha-512), client_id and max_message_bytes.
	URL string
	// TLS is used where the URL asks for TLS and names no files; nil is Go's default.
	TLS *tls.Config
	// Producer is the producer's name; messages carry it in the header msghandler-producer.
	Producer string
}

// Sender is an outbox.Sender. A sender belongs to one relay.
type Sender struct {
	config   kafkaconn.ProducerConfig
	name     string
	producer *kafkaconn.Producer // nil: there is none yet, or the last one is of no use
	routes   *publish.Routes
}

// New returns a sender. The sender connects with the first batch.
func New(config Config) (*Sender, error) {
	cluster, err := address.ParseKafka(config.URL)
	if err != nil {
		return nil, fmt.Errorf("outbox kafka.Config: URL %w", err)
	}
	if config.Producer == "" {
		return nil, errors.New("outbox kafka.Config: Producer is missing; give the producer's name")
	}
	conn := kafkaconn.Config{
		Address: cluster, Name: "outbox " + config.Producer, TLS: config.TLS, AnswerTimeout: answerTimeout,
	}
	if _, err := conn.Options(); err != nil {
		return nil, fmt.Errorf("outbox kafka.Config: %w", err)
	}
	return &Sender{
		config: kafkaconn.ProducerConfig{Config: conn, Window: window}, name: config.Producer,
		routes: publish.NewRoutes(probePauses),
	}, nil
}

// Close closes the connections. Call it after the relay's Run has returned.
func (s *Sender) Close() {
	if s.producer != nil {
		s.producer.Close()
		s.producer = nil
	}
}

// Send implements outbox.Sender. While a topic stalls, its messages are Early, except for one probe after each pause.
func (s *Sender) Send(ctx context.Context, messages []sql.Queued) []outbox.Result {
	b := &batch{sender: s, messages: messages, results: make([]outbox.Result, len(messages))}
	for i := range messages {
		if b.hold(i) {
			b.going = append(b.going, i)
		}
	}
	if len(b.going) == 0 {
		return b.results
	}
	if err := s.connect(ctx); err != nil {
		for _, i := range b.going {
			b.results[i] = outbox.Result{Fate: outbox.Unreached, Err: err, Unsent: true}
			route := b.route(i)
			s.routes.Release(&route)
		}
		return b.results
	}
	b.send(ctx)
	b.learn()
	if b.useless {
		s.Close()
	}
	return b.results
}

// connect makes a producer if there is none, and looks whether the cluster answers.
func (s *Sender) connect(ctx context.Context) error {
	if s.producer == nil {
		producer, err := kafkaconn.NewProducer(s.config)
		if err != nil {
			return err
		}
		s.producer = producer
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if err := s.producer.Reach(ctx); err != nil {
		s.Close()
		return fmt.Errorf("connect to Kafka: %w", err)
	}
	return nil
}

// batch is one call of Send.
type batch struct {
	sender   *Sender
	messages []sql.Queued
	results  []outbox.Result
	// going are the places of the messages to send.
	going []int
	// silent are the places of messages without an answer when the time was over.
	silent []int
	// useless: the cluster does not let the user write, or did not answer. The next batch gets a new producer.
	useless bool
}

// placed is the answer to the message at a place of the batch.
type placed struct {
	place  int
	answer kafkaconn.Answer
}

func (b *batch) route(i int) publish.Message {
	m := &b.messages[i].Message
	return publish.Message{Producer: b.sender.name, ID: m.ID, Exchange: m.Exchange}
}

// message is the message at a place, as a copy of the number.
func (b *batch) message(i, attempt int) kafkaconn.Message {
	q := &b.messages[i]
	m := &q.Message
	return kafkaconn.Message{
		ID: m.ID, Producer: b.sender.name, Topic: m.Exchange, Key: m.RoutingKey, ContentType: m.ContentType,
		Headers: m.Headers, Body: m.Body, Time: q.DueAt(), Attempt: attempt,
	}
}

// hold reports whether a message may be sent, and sets its result otherwise. Without a coordinator the table keeps the
// delay.
func (b *batch) hold(i int) bool {
	q := &b.messages[i]
	message := b.message(i, q.Claims)
	if err := cmp.Or(q.Unreadable, message.Check(), outbox.ForCoordinator(&q.Message)); err != nil {
		b.results[i] = b.refused(i, err)
		return false
	}
	if q.Age < q.Message.Delay {
		b.results[i] = outbox.Result{Fate: outbox.Early, In: q.Message.Delay - q.Age}
		return false
	}
	route := b.route(i)
	if decision := b.sender.routes.DecideShared(&route); decision.State == publish.Stalled {
		b.results[i] = outbox.Result{Fate: outbox.Early, In: cmp.Or(decision.RetryIn, besideProbe), Err: decision.Err}
		return false
	}
	return true
}

// send sends messages, and those of a refused batch of records once more, each alone: one of them is the reason.
func (b *batch) send(ctx context.Context) {
	answers := make(chan placed, len(b.going))
	waiting := make(map[int]bool, len(b.going))
	for _, i := range b.going {
		waiting[i] = true
		message := b.message(i, b.messages[i].Claims)
		b.sender.producer.Write(ctx, message.Record(), func(a kafkaconn.Answer) { answers <- placed{i, a} })
	}
	var suspects []int
	for len(waiting) > 0 {
		select {
		case a := <-answers:
			delete(waiting, a.place)
			if a.answer.Fate == kafkaconn.BatchRefused {
				suspects = append(suspects, a.place)
				continue
			}
			b.settle(a.place, a.answer)
			continue
		case <-ctx.Done():
		}
		for i := range waiting {
			b.silent = append(b.silent, i)
			b.settle(i, kafkaconn.Answer{Fate: kafkaconn.Unknown, Err: fmt.Errorf("no answer of Kafka: %w", ctx.Err())})
		}
		break
	}
	for _, i := range slices.Sorted(slices.Values(suspects)) {
		message := b.message(i, b.messages[i].Claims+1)
		b.settle(i, repeated(b.sender.producer.WriteAlone(ctx, message.Record())))
	}
}

// repeated is the answer to a message that was written twice. Only an acknowledgement or a refusal of the message
// itself says something about the first copy, too: a broker may have the first one, as the client fails more batches
// than the refused one.
func repeated(answer kafkaconn.Answer) kafkaconn.Answer {
	if answer.Fate != kafkaconn.Stored && answer.Fate != kafkaconn.BatchRefused {
		answer.Fate = kafkaconn.Unknown
	}
	return answer
}

// settle sets the result of a message that was sent.
func (b *batch) settle(i int, answer kafkaconn.Answer) {
	err := answer.Err
	if err != nil {
		err = fmt.Errorf("publish %s: %w", b.messages[i].Message.ID, err)
	}
	switch answer.Fate {
	case kafkaconn.Stored:
		b.results[i] = outbox.Result{Fate: outbox.Sent}
	case kafkaconn.TopicRefused, kafkaconn.BatchRefused:
		b.results[i] = outbox.Result{Fate: outbox.Refused, Err: err}
	case kafkaconn.Unwritten:
		b.results[i] = outbox.Result{Fate: outbox.Unreached, Err: err, Unsent: true}
	case kafkaconn.AccessRefused:
		b.results[i] = outbox.Result{Fate: outbox.Unreached, Err: err, Unsent: true}
		b.useless = true
	default:
		b.results[i] = outbox.Result{Fate: outbox.Unreached, Err: err}
	}
}

func (b *batch) refused(i int, why error) outbox.Result {
	return outbox.Result{Fate: outbox.Refused, Err: fmt.Errorf("publish %s: %w", b.messages[i].Message.ID, why)}
}

// learn records the answers. A message without an answer in time stalls its topic if the cluster answered others: the
// next batches do not wait for that topic. Without any answer the cluster may be lost.
func (b *batch) learn() {
	routes := b.sender.routes
	if len(b.silent) == len(b.going) {
		b.useless = true
	}
	for _, i := range b.silent {
		route := b.route(i)
		if len(b.silent) < len(b.going) || routes.IsStalled(&route) {
			routes.Unanswered(&route)
		}
	}
	for _, i := range b.going {
		route := b.route(i)
		routes.Release(&route)
	}
	for _, i := range b.going { // after the loop above: a topic with one answer is slow, and does not stall
		if fate := b.results[i].Fate; fate == outbox.Sent || fate == outbox.Refused {
			route := b.route(i)
			routes.Answered(&route)
		}
	}
}

var _ outbox.Sender = (*Sender)(nil)
