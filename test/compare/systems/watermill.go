package systems

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	watermillmessage "github.com/ThreeDotsLabs/watermill/message"

	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

// watermillEight is Watermill's forwarder: the outbox component of its documentation, from its SQL publisher and
// subscriber to its AMQP publisher, with confirms.
//
// A forwarder publishes one message after another, in the order of the transactions. So throughput needs several: the
// orders are spread over eight topics, each with a forwarder. Eight did best of 4, 8 and 16. The table has a
// BYTEA payload, because the body is in an envelope already; batches have the default of 100 rows. The poll interval is
// 20 ms instead of a second. The AMQP publisher keeps a channel for each forwarder, as its documentation recommends.
var watermillEight = watermillKind("watermill", "Watermill's forwarder, 8 topics", 8)

// watermillOne is the same with a single topic: all messages keep the order of their transactions.
var watermillOne = watermillKind("watermill1", "Watermill's forwarder, one topic, ordered", 1)

const forwarderPoll = 20 * time.Millisecond

func watermillKind(name, title string, topics int) Kind {
	waiting := `SELECT 0`
	for topic := range topics {
		waiting += fmt.Sprintf(` + (SELECT count(*) FROM watermill_%[1]s AS m, watermill_offsets_%[1]s AS o
			WHERE (m.transaction_id, m."offset") > (o.last_processed_transaction_id, o.offset_acked))`, topicName(name, topic))
	}
	return Kind{
		Name: name, Title: title,
		Setup: func(ctx context.Context, c Config) error { return setupForwarder(ctx, c, name, topics) },
		Open: func(ctx context.Context, c Config) (System, error) {
			return openForwarder(ctx, c, name, topics)
		},
		Waiting: waiting,
		Fate: `SELECT CASE (` + waiting + `) WHEN 0 THEN 'nothing: the message counts as forwarded' ELSE 'it waits' END
			WHERE $1 <> ''`,
	}
}

func topicName(name string, topic int) string { return fmt.Sprintf("%s_%d", name, topic) }

// schema is the documented schema for outboxes, which keeps the order of transactions.
var schema = watermillsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }}

type forwarderSystem struct {
	name       string
	topics     int
	pool       *pgxpool.Pool
	publisher  *amqp.Publisher
	forwarders []*forwarder.Forwarder
}

func subscriber(pool *pgxpool.Pool) (*watermillsql.Subscriber, error) {
	return watermillsql.NewSubscriber(watermillsql.BeginnerFromPgx(pool), watermillsql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
		PollInterval: forwarderPoll,
	}, watermill.NopLogger{})
}

func setupForwarder(ctx context.Context, c Config, name string, topics int) error {
	pool, err := openPool(ctx, c.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := subscriber(pool)
	if err != nil {
		return err
	}
	for topic := range topics {
		if err := s.SubscribeInitialize(topicName(name, topic)); err != nil {
			return err
		}
	}
	return nil
}

func openForwarder(ctx context.Context, c Config, name string, topics int) (System, error) {
	pool, err := openPool(ctx, c.Database)
	if err != nil {
		return nil, err
	}
	s := &forwarderSystem{name: name, topics: topics, pool: pool}
	if s.publisher, err = amqp.NewPublisher(amqpConfig(c.Broker, topics), watermill.NopLogger{}); err != nil {
		return nil, err
	}
	for topic := range topics {
		if err := s.forward(ctx, topicName(name, topic)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func amqpConfig(url string, channels int) amqp.Config {
	config := amqp.NewDurableQueueConfig(url)
	config.Publish.ConfirmDelivery, config.Publish.Mandatory, config.Publish.ChannelPoolSize = true, true, channels
	config.Marshaler = amqp.DefaultMarshaler{PostprocessPublishing: func(p amqp091.Publishing) amqp091.Publishing {
		p.MessageId, _ = p.Headers[amqp.DefaultMessageUUIDHeaderKey].(string)
		return p
	}}
	return config
}

// forward starts the forwarder of a topic.
func (s *forwarderSystem) forward(ctx context.Context, topic string) error {
	from, err := subscriber(s.pool)
	if err != nil {
		return err
	}
	f, err := forwarder.NewForwarder(from, s.publisher, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: topic})
	if err != nil {
		return err
	}
	s.forwarders = append(s.forwarders, f)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	select {
	case <-f.Running():
		return nil
	case err := <-ended:
		return err
	}
}

func (s *forwarderSystem) Commit(ctx context.Context, o Order) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing after a commit
	if _, err := tx.Exec(ctx, InsertOrder, o.business()...); err != nil {
		return err
	}
	inTransaction, err := watermillsql.NewPublisher(watermillsql.TxFromPgx(tx),
		watermillsql.PublisherConfig{SchemaAdapter: schema}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	topic := topicName(s.name, int(o.Number%uint64(s.topics)))
	outbox := forwarder.NewPublisher(inTransaction, forwarder.PublisherConfig{ForwarderTopic: topic})
	if err := outbox.Publish(o.RoutingKey, watermillmessage.NewMessage(o.ID(), o.Body)); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func (s *forwarderSystem) Close() {
	for _, f := range s.forwarders {
		_ = f.Close()
	}
	_ = s.publisher.Close()
	s.pool.Close()
}
