package shop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// The outcomes of ORDER_CREATED in the inventory.
const (
	Reserved = "reserved"
	Skipped  = "skipped"
)

// Reserve notes in the inventory that an order holds its product. The inventory skips an order that was cancelled
// before.
func (s *Shop) Reserve(ctx context.Context, tx *sql.Tx, id, product int64) error {
	o, err := s.LookIn(ctx, tx, id)
	if err != nil {
		return err
	}
	outcome := Reserved
	if o.Status == Cancelled {
		outcome = Skipped
	}
	_, err = s.write(ctx, tx, `INSERT INTO demo_inventory (order_id, product_id, outcome) VALUES (?, ?, ?)`,
		id, product, outcome)
	if err != nil {
		return fmt.Errorf("reserve product %d for order %d: %w", product, id, err)
	}
	return nil
}

// Ship notes the shipment of a paid order and moves the order to shipped. An order in another status is ErrStatus.
func (s *Shop) Ship(ctx context.Context, tx *sql.Tx, id int64) error {
	if err := s.Advance(ctx, tx, id, Paid, Shipped); err != nil {
		return err
	}
	_, err := s.write(ctx, tx, `INSERT INTO demo_shipments (order_id, product_id)
		SELECT id, product_id FROM demo_orders WHERE id = ?`, id)
	if err != nil {
		return fmt.Errorf("ship order %d: %w", id, err)
	}
	return nil
}

// Sync shows buyers the new status of an order. Events may overtake each other, so the view never goes back.
func (s *Shop) Sync(ctx context.Context, tx *sql.Tx, id int64, to Status) error {
	var seen Status
	err := tx.QueryRowContext(ctx, s.db.SQL(`SELECT status FROM demo_order_views WHERE order_id = ?`), id).Scan(&seen)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		_, err = s.write(ctx, tx, `INSERT INTO demo_order_views (order_id, status) VALUES (?, ?)`, id, string(to))
	case err == nil && seen == Shipped && to == Completed:
		_, err = s.write(ctx, tx, `UPDATE demo_order_views SET status = ? WHERE order_id = ? AND status = ?`,
			string(to), id, string(seen))
	}
	if err != nil {
		return fmt.Errorf("show order %d as %s: %w", id, to, err)
	}
	return nil
}

// Effects counts what the consumers made of the events.
type Effects struct{ Inventory, Shipments, Views, Copies int }

// Effects counts in the database.
func (s *Shop) Effects(ctx context.Context) (e Effects, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM demo_inventory), (SELECT COUNT(*) FROM demo_shipments),
		(SELECT COUNT(*) FROM demo_order_views), (SELECT COUNT(*) FROM demo_copies)`).
		Scan(&e.Inventory, &e.Shipments, &e.Views, &e.Copies)
	if err != nil {
		return Effects{}, fmt.Errorf("count the effects of events: %w", err)
	}
	return e, nil
}

// NoteCopy notes an event that was delivered again.
func (s *Shop) NoteCopy(ctx context.Context, event string, attempt int, redelivered bool) error {
	_, err := s.db.ExecContext(ctx, s.db.SQL(`INSERT INTO demo_copies (event, attempt, redelivered) VALUES (?, ?, ?)`),
		event, attempt, redelivered)
	if err != nil {
		return fmt.Errorf("note a copy of %s: %w", event, err)
	}
	return nil
}
