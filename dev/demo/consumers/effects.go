package consumers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/envelope"
	"github.com/msghandler/msghandler/dev/demo/shop"
	"github.com/msghandler/msghandler/producer"
)

// reserve is the inventory: a new order holds its product.
func (s *Service) reserve(ctx context.Context, tx *sql.Tx, payload any) error {
	created, ok := payload.(shop.OrderCreated)
	if !ok {
		return misplaced(payload)
	}
	return s.shop.Reserve(ctx, tx, created.OrderID, created.ProductID)
}

// ship is the fulfilment: a paid order is handed to the courier, is shipped, and ORDER_STATUS_CHANGED goes into the
// outbox, all or nothing. A courier without a transaction may get a parcel twice, and must know the order.
func (s *Service) ship(ctx context.Context, tx *sql.Tx, payload any) error {
	paid, ok := payload.(shop.OrderPaid)
	if !ok {
		return misplaced(payload)
	}
	o, err := s.shop.LookIn(ctx, tx, paid.OrderID)
	if err != nil || o.Status == shop.Shipped || o.Status == shop.Completed {
		return err
	}
	if o.Status != shop.Paid {
		return consumer.Reject(fmt.Errorf("order %d is %s, and its event says that it is paid", o.ID, o.Status))
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	head := envelope.Head{ID: fmt.Sprintf("%d-shipped", o.ID), OccurredAt: now, TraceID: shop.TraceID(ctx)}
	body, err := shop.Changed.Marshal(head, shop.OrderStatusChanged{
		OrderID: o.ID, OrderNo: o.OrderNo, OldStatus: shop.Paid, NewStatus: shop.Shipped, ChangedAt: now,
	})
	if err != nil {
		return err
	}
	if err := s.outbox.Enqueue(ctx, tx, producer.Message{
		ID: head.ID, Exchange: shop.Exchange, RoutingKey: shop.KeyChanged, ContentType: envelope.ContentType, Body: body,
		Headers: map[string]string{shop.Header: shop.Traceparent(ctx)},
	}); err != nil {
		return err
	}
	if err := s.shop.Ship(ctx, tx, o.ID); err != nil {
		return err
	}
	return s.config.Courier(ctx, o.ID)
}

// sync is the status sync: buyers see what happens to their orders.
func (s *Service) sync(ctx context.Context, tx *sql.Tx, payload any) error {
	changed, ok := payload.(shop.OrderStatusChanged)
	if !ok {
		return misplaced(payload)
	}
	o, err := s.shop.LookIn(ctx, tx, changed.OrderID)
	if err != nil {
		return err
	}
	if o.Status != shop.Shipped && o.Status != shop.Completed {
		return consumer.Reject(fmt.Errorf("order %d is %s, and its event says that it is %s",
			o.ID, o.Status, changed.NewStatus))
	}
	return s.shop.Sync(ctx, tx, changed.OrderID, changed.NewStatus)
}

// timeOut cancels an order that is still pending when its time to pay is over. The deadline and the status are in the
// condition of the UPDATE, which must change exactly one row: a payment at the same moment wins or loses as a whole.
// An event that comes too early is retried.
func (s *Service) timeOut(ctx context.Context, tx *sql.Tx, payload any) error {
	due, ok := payload.(shop.OrderTimeout)
	if !ok {
		return misplaced(payload)
	}
	o, err := s.shop.LookIn(ctx, tx, due.OrderID)
	if err != nil || o.Status != shop.Pending {
		return err
	}
	deadline := time.Now().Add(-s.config.PayWithin)
	if o.CreateTime.After(deadline) {
		return fmt.Errorf("order %d has until %v to be paid", o.ID, o.CreateTime.Add(s.config.PayWithin))
	}
	err = s.shop.TimeOut(ctx, tx, o.ID, deadline)
	if errors.Is(err, shop.ErrStatus) {
		return nil // the buyer paid or cancelled at this moment
	}
	return err
}
