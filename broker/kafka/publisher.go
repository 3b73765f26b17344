// Package kafka publishes messages to Kafka and reports the cluster's answer to each.
//
// The exchange of a message is the topic, and the routing key is the key of the record. A message is done only when all
// in-sync replicas have the record. These keep the promise:
//   - package kafkaconn: an idempotent writer that says of each record whether a broker may have it.
//   - the table publish.Routes: the first message to a topic is a probe, so that a missing topic costs one question. A
//     topic that takes no messages keeps no others waiting.
//   - publishcall.go: one batch on its way. Messages of a refused batch of records are written again, each alone.
//   - publisher.go: keeps a producer for as long as the cluster answers. Package publish has the rest of a publisher's
//     life.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// Config says how to publish. The URL is the address of one cluster, kafka://host:port,host:port with options; see
// address.ParseKafka.
type Config = publish.Config

// Publisher is a publish.Publisher for one cluster. It reconnects by itself, and is safe for concurrent use.
type Publisher struct {
	*publish.Life[*kafkaconn.Producer]
	address address.Kafka
	// nudged has an element when the cluster may be lost, and must be looked at now.
	nudged chan struct{}
	// refused has an element when the cluster lets the user write nothing, which ends the producer.
	refused chan error
}

// New returns a publisher and does not wait for the cluster: the publisher connects in the background, and Ready
// reports the state. An error says what of the URL is not valid; it never holds the URL.
func New(config Config) (*Publisher, error) {
	cluster, err := address.ParseKafka(config.URL)
	if err != nil {
		return nil, fmt.Errorf("the URL of the broker %w", err)
	}
	if _, err := (kafkaconn.Config{Address: cluster, TLS: config.TLS}).Options(); err != nil {
		return nil, err // a file that the URL names cannot be used
	}
	p := &Publisher{
		Life:    publish.NewLife[*kafkaconn.Producer](config, publish.RoutesConfig{ByExchange: true}),
		address: cluster, nudged: make(chan struct{}, 1), refused: make(chan error, 1),
	}
	p.Start(p.connect)
	return p, nil
}

// nudge has the cluster looked at now.
func (p *Publisher) nudge() {
	select {
	case p.nudged <- struct{}{}:
	default:
	}
}

// connect uses one producer until the cluster is lost, and returns why it was lost.
func (p *Publisher) connect(ctx context.Context) (broker string, lost error) {
	if cluster, err := address.ParseKafka(p.Config.PresentURL()); err == nil {
		p.address = cluster
	}
	broker = strings.Join(p.address.Hosts, ",")
	producer, err := p.newProducer()
	if err != nil {
		return broker, fmt.Errorf("connect: %w", err)
	}
	// The producer answers every message in flight when it is closed. Messages must not get it any more by then.
	defer producer.Close()
	if err := p.reach(ctx, producer); err != nil {
		return broker, fmt.Errorf("connect: %w", err)
	}
	select {
	case <-p.refused: //nolint:errcheck // of an earlier producer
	default:
	}
	p.Connected(ctx, broker, producer)
	defer p.Disconnected()
	return broker, p.watch(ctx, producer)
}

// watch looks at the cluster from time to time, and returns why the cluster is lost.
func (p *Publisher) watch(ctx context.Context, producer *kafkaconn.Producer) error {
	tick := time.NewTicker(p.Config.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.nudged:
		case why := <-p.refused:
			return why
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := p.reach(ctx, producer); err != nil {
			return err
		}
	}
}

func (p *Publisher) reach(ctx context.Context, producer *kafkaconn.Producer) error {
	ctx, cancel := context.WithTimeout(ctx, p.Config.WriteTimeout)
	defer cancel()
	return producer.Reach(ctx)
}

func (p *Publisher) newProducer() (*kafkaconn.Producer, error) {
	return kafkaconn.NewProducer(kafkaconn.ProducerConfig{
		Config: kafkaconn.Config{
			Address: p.address, Name: p.Config.Name, Dial: p.Config.Dial, TLS: p.Config.TLS, Handshake: p.Config.Handshake,
			AnswerTimeout: p.Config.ConfirmTimeout / 2,
		},
		// Messages that are written alone have no slot.
		Window: 2 * p.Config.Window,
		OnLoss: p.nudge,
		OnDataLoss: func(topic string, partition int32) {
			p.Config.Logger.Error("Kafka has lost acknowledged records; consumers miss messages; look at the cluster's log",
				"topic", topic, "partition", partition)
		},
	})
}

// learn takes the answer to a message as the cluster's answer about the topic and about itself.
func (p *Publisher) learn(m *publish.Message, answer kafkaconn.Answer) {
	switch {
	case answer.Fate == kafkaconn.Stored, answer.Fate == kafkaconn.BatchRefused:
		p.Routes.Accept(m.Exchange)
		p.Routes.Answered(m)
		p.Stored()
	case answer.Fate == kafkaconn.TopicRefused:
		p.Routes.Reject(m.Exchange, answer.Err)
		p.Routes.Answered(m)
	case answer.Fate == kafkaconn.AccessRefused:
		select {
		case p.refused <- fmt.Errorf("%w: %w", publish.ErrAccessRefused, answer.Err):
		default:
		}
	case answer.Blocked():
		p.stall(m, answer.Err)
		p.NoRoom(answer.Err, "look at the replicas of the topics")
	default:
		p.stall(m, answer.Err)
		p.nudge()
	}
}

// stall lets one message at a time probe the topic. Only the probes of a topic that keeps messages waiting have pauses:
// an answer, or the end of a connection, comes soon, and the topic may have another leader by then.
func (p *Publisher) stall(m *publish.Message, why error) {
	if errors.Is(why, context.DeadlineExceeded) {
		p.Routes.Unanswered(m)
	} else {
		p.Routes.NotStored(m)
	}
	p.Routes.Release(m)
}

var _ publish.Client = (*Publisher)(nil)
