// Package consumers handles the events of the demos' shop; it is written to be read: start with handle.
//
// There are four consumers: inventory, fulfilment, status sync and time-out. Each effect is a transaction in the shop's
// database with the row of the inbox. So an event that is delivered again has no second effect, even after a crash.
// Each consumer looks at the order's status before it acts, because the order may have changed since the event.
package consumers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/dev/demo/shop"
	"github.com/msghandler/msghandler/examples/database"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

// Config has the addresses of the service.
type Config struct {
	// URL is the address of the broker.
	URL string
	// Database is the shop's, with the inbox.
	Database *database.DB
	// PayWithin is how long an order may stay unpaid, and Retries the delays after a failure: the same as at the producer.
	PayWithin time.Duration
	Retries   []time.Duration
	// Prefetch is the number of in-flight events of each queue. Default: the SDK's.
	Prefetch int
	// Courier takes the parcel of an order; after an error the event is retried. Nil: a courier that takes everything.
	Courier func(ctx context.Context, order int64) error
	// Consuming is called when all consumers wait for events.
	Consuming func()
	// Logger gets the events of the connections, and the rejected events.
	Logger *slog.Logger
}

// concurrency is how many events of a queue are handled at once: several commits share a write to the disk.
const concurrency = 4

// Service runs the consumers of the shop.
type Service struct {
	config    Config
	shop      *shop.Shop
	outbox    *sqlmarker.Store
	consumers []*part
	waiting   atomic.Int32
}

// part is the consumer of one queue.
type part struct {
	consumer *rabbitmqconsumer.Consumer
	inbox    *sqlinbox.Inbox
	act      effect
}

// effect acts on an event, in the transaction of the inbox.
type effect func(ctx context.Context, tx *sql.Tx, payload any) error

// Open makes the tables where they are missing.
func Open(ctx context.Context, config Config) (*Service, error) {
	if config.Courier == nil {
		config.Courier = func(context.Context, int64) error { return nil }
	}
	s := &Service{config: config}
	var err error
	if s.shop, err = shop.Open(ctx, config.Database, 0); err != nil {
		return nil, err
	}
	s.outbox, err = sqlmarker.New(sqlmarker.Config{
		DB: config.Database.DB, Dialect: config.Database.Dialect, Producer: shop.Producer,
		TxOptions: config.Database.TxOptions(),
	})
	if err == nil {
		err = s.outbox.Migrate(ctx)
	}
	if err != nil {
		return nil, err
	}
	for queue, act := range map[string]effect{
		shop.InventoryQueue: s.reserve, shop.FulfillmentQueue: s.ship, shop.SyncQueue: s.sync, shop.TimeoutQueue: s.timeOut,
	} {
		p, err := s.part(ctx, queue, act)
		if err != nil {
			return nil, err
		}
		s.consumers = append(s.consumers, p)
	}
	return s, nil
}

func (s *Service) part(ctx context.Context, queue string, act effect) (*part, error) {
	declare, err := shop.Topology(s.config.PayWithin, s.config.Retries).For(queue)
	if err != nil {
		return nil, err
	}
	p := &part{act: act}
	p.consumer, err = rabbitmqconsumer.New(rabbitmqconsumer.Config{
		URL: s.config.URL, Queue: queue, Declare: declare, Prefetch: s.config.Prefetch, Concurrency: concurrency,
		Consuming: s.consuming(), Logger: s.config.Logger,
	})
	if err != nil {
		return nil, err
	}
	p.inbox, err = sqlinbox.New(sqlinbox.Config{
		DB: s.config.Database.DB, Dialect: s.config.Database.Dialect, Consumer: queue,
		TxOptions: s.config.Database.TxOptions(),
	})
	if err != nil {
		return nil, err
	}
	return p, p.inbox.Migrate(ctx)
}

// consuming counts the consumers that wait for events, each once.
func (s *Service) consuming() func() {
	return sync.OnceFunc(func() {
		if int(s.waiting.Add(1)) == len(s.consumers) && s.config.Consuming != nil {
			s.config.Consuming()
		}
	})
}

// Run handles events until the context ends.
func (s *Service) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	ends := make(chan error, len(s.consumers))
	for _, p := range s.consumers {
		running.Go(func() { ends <- p.consumer.Run(ctx, s.handler(p)) })
	}
	var errs []error
	for range s.consumers { // when one ends, all do
		errs = append(errs, <-ends)
		stop()
	}
	return errors.Join(errs...)
}

func (s *Service) handler(p *part) consumer.Handler {
	return consumer.Chain(p.inbox.Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
		return handle(ctx, tx, m, p.act)
	}), s.noteCopies)
}

// handle reads an event and acts on it. An event of an unknown type, without its data, or about another order than its
// payload can never be handled: it goes to the dead letters at once, and the log says why. After any other error the
// event is retried after a delay.
func handle(ctx context.Context, tx *sql.Tx, m *consumer.Message, act effect) error {
	event, err := shop.Events.Decode(m.ID, m.ContentType, m.Body)
	if err != nil {
		return consumer.Reject(err)
	}
	return act(shop.WithTrace(ctx, m.Headers[shop.Header]), tx, event.Payload)
}

// misplaced rejects an event of a known type in the queue of another.
func misplaced(payload any) error {
	return consumer.Reject(fmt.Errorf("a %T is not for this queue", payload))
}

// noteCopies notes redelivered events for the books.
func (s *Service) noteCopies(next consumer.Handler) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
		err := next.Handle(ctx, m)
		if errors.Is(err, consumer.ErrDuplicate) {
			if noted := s.shop.NoteCopy(ctx, m.ID, m.Attempt, m.Redelivered); noted != nil {
				return noted // the event is delivered once more
			}
		}
		return err
	})
}

// Status counts the effects of events.
func (s *Service) Status(ctx context.Context) (shop.Effects, error) { return s.shop.Effects(ctx) }
