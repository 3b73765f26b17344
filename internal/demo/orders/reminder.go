package orders

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/msghandler/msghandler/consumer"
)

// consumeReminders makes the consumer of the reminders of orders.
func (s *Service) consumeReminders() (*consumer.Consumer, error) {
	queue := s.config.Name + ".time-up"
	return consumer.New(consumer.Config{
		URL: s.config.AMQP, Queue: queue, Prefetch: 100, Concurrency: 4,
		Declare: &consumer.Declare{
			Exchange: s.config.Exchange, BindingKeys: []string{timeUp}, DeadLetterExchange: queue + ".dead",
			Delays: []time.Duration{time.Second, 10 * time.Second, time.Minute}, RetryLimit: 10,
		},
		Logger: s.config.Logger,
	})
}

// cancelUnpaid cancels an order if the order is still unpaid. The condition is in the UPDATE: a payment at the same
// moment wins or loses as a whole, and a redelivered reminder finds no unpaid order. So this effect needs no inbox.
func (s *Service) cancelUnpaid(ctx context.Context, m *consumer.Message) error {
	var due orderTimeUp
	err := json.Unmarshal(m.Body, &due)
	if err == nil && due.OrderID == "" {
		err = errors.New("order_id is missing")
	}
	if err != nil {
		return consumer.Reject(fmt.Errorf("message %s names no order: %w", m.Key(), err))
	}
	return s.config.Database.InTx(ctx, func(tx *sql.Tx) error {
		_, err := s.shop.cancel(ctx, tx, due.OrderID)
		return err
	})
}
