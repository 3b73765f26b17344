// Package payments is a service that books the money for orders and ships their items. The service uses the consumer
// SDK and is written to be read: start with effect.
//
// Payment and shipment are rows in the service's own database, written in the transaction of the inbox row. A
// redelivered order is therefore booked and shipped once, even when the process crashes.
package payments

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/internal/demo/database"
	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// Config has the addresses of the service.
type Config struct {
	// URL is the address of the broker.
	URL string
	// Queue is the consumed queue, bound to Exchange by BindingKey.
	Queue, Exchange, BindingKey string
	// Database holds payments, shipments and the inbox.
	Database *database.DB
	// Prefetch is the number of in-flight orders. Default: the SDK's.
	Prefetch int
	// Consuming is called each time the service begins to wait for orders.
	Consuming func()
	// Logger gets the events of the connection.
	Logger *slog.Logger
}

var tables = []string{
	`CREATE TABLE IF NOT EXISTS demo_payments (order_id {id} PRIMARY KEY, amount_cents BIGINT NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS demo_shipments (
		order_id {id} NOT NULL, sku {id} NOT NULL, quantity BIGINT NOT NULL, PRIMARY KEY (order_id, sku))`,
	// Redelivered orders, and how the delivery was marked: for the books of the demo.
	`CREATE TABLE IF NOT EXISTS demo_copies (
		order_id {id} NOT NULL, attempt BIGINT NOT NULL, redelivered BOOLEAN NOT NULL)`,
}

// concurrency is how many orders are booked at once: several commits share a write to the disk.
const concurrency = 4

// Service books and ships each paid order, once.
type Service struct {
	db       *database.DB
	inbox    *sqlinbox.Inbox
	consumer *consumer.Consumer
	logger   *slog.Logger
}

// Open makes the tables where they are missing.
func Open(ctx context.Context, config Config) (*Service, error) {
	c, err := consumer.New(consumer.Config{
		URL: config.URL, Queue: config.Queue, Prefetch: config.Prefetch, Concurrency: concurrency,
		Declare: &consumer.Declare{
			Exchange: config.Exchange, BindingKeys: []string{config.BindingKey}, DeadLetterExchange: config.Queue + ".dead",
			Delays: []time.Duration{time.Second, 10 * time.Second, time.Minute}, RetryLimit: 10,
		},
		Consuming: config.Consuming, Logger: config.Logger,
	})
	if err != nil {
		return nil, err
	}
	inbox, err := sqlinbox.New(sqlinbox.Config{
		DB: config.Database.DB, Dialect: config.Database.Dialect, Consumer: config.Queue,
		TxOptions: config.Database.TxOptions(),
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(inbox.Migrate(ctx), config.Database.Create(ctx, tables...)); err != nil {
		return nil, err
	}
	return &Service{db: config.Database, inbox: inbox, consumer: c, logger: config.Logger}, nil
}

// Run books and ships until the context ends.
func (s *Service) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	purging, stop := context.WithCancel(ctx)
	defer stop()
	running.Go(func() { s.purge(purging) })
	return s.consumer.Run(ctx, s.handler())
}

func (s *Service) handler() consumer.Handler {
	return consumer.Chain(s.inbox.Handler(s.effect), s.recordCopies)
}

// effect books the money and ships the items of an order, in the transaction of the inbox. A malformed message goes to
// the dead letters; after any other error the message is redelivered after a delay.
func (s *Service) effect(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
	var order struct {
		OrderID     string `json:"order_id"`
		AmountCents int64  `json:"amount_cents"`
		Items       []struct {
			SKU      string `json:"sku"`
			Quantity int64  `json:"quantity"`
		} `json:"items"`
	}
	if err := json.Unmarshal(m.Body, &order); err != nil {
		return consumer.Reject(fmt.Errorf("not an order: %w", err))
	}
	if order.OrderID != m.ID || len(order.Items) == 0 {
		return consumer.Reject(fmt.Errorf("the body of message %s is order %q with %d items",
			m.ID, order.OrderID, len(order.Items)))
	}
	if _, err := s.db.Write(ctx, tx, `INSERT INTO demo_payments (order_id, amount_cents) VALUES (?, ?)`,
		order.OrderID, order.AmountCents); err != nil {
		return fmt.Errorf("book order %s: %w", order.OrderID, err)
	}
	for _, item := range order.Items {
		if _, err := s.db.Write(ctx, tx, `INSERT INTO demo_shipments (order_id, sku, quantity) VALUES (?, ?, ?)`,
			order.OrderID, item.SKU, item.Quantity); err != nil {
			return fmt.Errorf("ship order %s: %w", order.OrderID, err)
		}
	}
	return nil
}

// recordCopies records redelivered orders for the books.
func (s *Service) recordCopies(next consumer.Handler) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
		err := next.Handle(ctx, m)
		if errors.Is(err, consumer.ErrDuplicate) {
			_, noted := s.db.ExecContext(ctx,
				s.db.SQL(`INSERT INTO demo_copies (order_id, attempt, redelivered) VALUES (?, ?, ?)`),
				m.ID, m.Attempt, m.Redelivered)
			if noted != nil {
				return fmt.Errorf("record a copy of %s: %w", m.ID, noted) // the message is redelivered
			}
		}
		return err
	})
}

// purgeEvery is how often the inbox deletes expired rows.
const purgeEvery = time.Hour

func (s *Service) purge(ctx context.Context) {
	for backoff.Sleep(ctx, purgeEvery) == nil {
		if _, err := s.inbox.Purge(ctx); err != nil {
			s.logger.Warn("inbox not purged; the next purge retries", "error", err)
		}
	}
}

// Status is the number of shipped orders and of dropped copies.
type Status struct{ Shipped, Copies int }

// Status counts in the database.
func (s *Service) Status(ctx context.Context) (now Status, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM demo_payments), (SELECT COUNT(*) FROM demo_copies)`).
		Scan(&now.Shipped, &now.Copies)
	if err != nil {
		return Status{}, fmt.Errorf("count payments: %w", err)
	}
	return now, nil
}
