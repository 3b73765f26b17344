// Package payments is a payment service that uses the consumer SDK, written to be read: start with handle.
//
// Its database is a ledger, a file of payments with a unique key on the order's number. The payment and the note that the
// order was handled are therefore one write, and an order that is delivered twice is paid once, whenever the process dies.
package payments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/demo/ledger"
)

// Config says where the service lives.
type Config struct {
	// URL is the broker's.
	URL string
	// Queue is consumed; it is bound to Exchange by BindingKey.
	Queue, Exchange, BindingKey string
	// Dir holds the ledger, payments.jsonl, and the list of dropped copies, copies.jsonl.
	Dir string
	// Prefetch is how many orders may be in hand. Default: that of the SDK.
	Prefetch int
	// Consuming is called each time that the service begins to wait for orders.
	Consuming func()
	// Logger gets what happens to the connection.
	Logger *slog.Logger
}

// Service takes a payment for each order, once.
type Service struct {
	consumer *consumer.Consumer
	ledger   *ledger.Ledger

	mu     sync.Mutex // serialises lines in copies
	copies io.WriteCloser
	copied atomic.Int64
}

// New opens the ledger.
func New(config Config) (*Service, error) {
	c, err := consumer.New(consumer.Config{
		URL:      config.URL,
		Queue:    config.Queue,
		Prefetch: config.Prefetch,
		Declare: &consumer.Declare{
			Exchange: config.Exchange, BindingKeys: []string{config.BindingKey}, DeadLetterExchange: config.Queue + ".dead",
		},
		Consuming: config.Consuming,
		Logger:    config.Logger,
	})
	if err != nil {
		return nil, err
	}
	book, err := ledger.Open(filepath.Join(config.Dir, "payments.jsonl"))
	if err != nil {
		return nil, err
	}
	copies, err := os.OpenFile(filepath.Join(config.Dir, "copies.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the list of copies: %w", err), book.Close())
	}
	return &Service{consumer: c, ledger: book, copies: copies}, nil
}

// Run takes payments until the context ends.
func (s *Service) Run(ctx context.Context) error {
	return s.consumer.Run(ctx, consumer.HandlerFunc(s.handle))
}

// handle takes the payment for one order. It returns nil when the payment is in the ledger, whoever put it there; a
// message that it will never understand goes to the dead letters; after any other error the message comes again.
func (s *Service) handle(_ context.Context, m *consumer.Message) error {
	var order struct {
		OrderID     string `json:"order_id"`
		AmountCents int64  `json:"amount_cents"`
	}
	if err := json.Unmarshal(m.Body, &order); err != nil {
		return consumer.Reject(fmt.Errorf("not an order: %w", err))
	}
	if order.OrderID != m.ID {
		return consumer.Reject(fmt.Errorf("the message %s speaks of order %q", m.ID, order.OrderID))
	}
	err := s.ledger.Append(ledger.Entry{ID: order.OrderID, AmountCents: order.AmountCents, At: time.Now().UTC()})
	if errors.Is(err, ledger.ErrExists) {
		return s.noteCopy(m)
	}
	return err
}

// noteCopy writes down that an order came again, so that the books can tell.
func (s *Service) noteCopy(m *consumer.Message) error {
	line, err := json.Marshal(struct {
		ID          string `json:"id"`
		Attempt     int    `json:"attempt"`
		Redelivered bool   `json:"redelivered"`
	}{m.ID, m.Attempt, m.Redelivered})
	if err != nil {
		return fmt.Errorf("encode a copy: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.copies.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("note a copy: %w", err)
	}
	s.copied.Add(1)
	return nil
}

// Paid is how many payments the ledger holds.
func (s *Service) Paid() int { return s.ledger.Len() }

// Copies is how many copies this process has dropped.
func (s *Service) Copies() int64 { return s.copied.Load() }

// Close closes the files, once Run has returned.
func (s *Service) Close() error { return errors.Join(s.ledger.Close(), s.copies.Close()) }
