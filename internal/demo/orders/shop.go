package orders

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/internal/demo/database"
)

// shop is the business: orders, their items and the stock, in the service's own database. Messages are no concern of
// the shop's. Changes run in the caller's transaction.
type shop struct{ db *database.DB }

// The states of an order. Paid and cancelled are for good.
const (
	Unpaid    = "unpaid"
	Paid      = "paid"
	Cancelled = "cancelled"
)

var tables = []string{
	`CREATE TABLE IF NOT EXISTS demo_stock (
		sku {id} PRIMARY KEY, price_cents BIGINT NOT NULL, stocked BIGINT NOT NULL, on_hand BIGINT NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS demo_orders (
		id {id} PRIMARY KEY, state VARCHAR(10) NOT NULL, amount_cents BIGINT NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS demo_order_items (
		order_id {id} NOT NULL, sku {id} NOT NULL, quantity BIGINT NOT NULL, PRIMARY KEY (order_id, sku))`,
}

// catalogue is the initial stock; there are never enough teapots.
var catalogue = []struct {
	sku                string
	priceCents, pieces int64
}{{"tea", 795, 100_000}, {"cup", 1250, 100_000}, {"teapot", 4900, 20}}

// openShop makes the tables and fills the stock, where they are missing.
func openShop(ctx context.Context, db *database.DB) (*shop, error) {
	s := &shop{db}
	if err := db.Create(ctx, tables...); err != nil {
		return nil, err
	}
	return s, db.InTx(ctx, func(tx *sql.Tx) error {
		var articles int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM demo_stock`).Scan(&articles); err != nil || articles > 0 {
			return err
		}
		for _, a := range catalogue {
			if _, err := db.Write(ctx, tx, `INSERT INTO demo_stock (sku, price_cents, stocked, on_hand) VALUES (?, ?, ?, ?)`,
				a.sku, a.priceCents, a.pieces, a.pieces); err != nil {
				return err
			}
		}
		return nil
	})
}

// ErrOutOfStock means that an article does not exist, or not in the ordered quantity.
var ErrOutOfStock = errors.New("out of stock")

// place stores an order and takes its items from the stock. A missing item is an error, and the rollback returns the
// other items.
func (s *shop) place(ctx context.Context, tx *sql.Tx, o Order) error {
	var amount int64
	for _, item := range inLockOrder(o.Items) {
		price, err := s.take(ctx, tx, item)
		if err != nil {
			return err
		}
		amount += price * item.Quantity
		if _, err := s.db.Write(ctx, tx, `INSERT INTO demo_order_items (order_id, sku, quantity) VALUES (?, ?, ?)`,
			o.ID, item.SKU, item.Quantity); err != nil {
			return fmt.Errorf("store an item of order %s: %w", o.ID, err)
		}
	}
	_, err := s.db.Write(ctx, tx, `INSERT INTO demo_orders (id, state, amount_cents) VALUES (?, ?, ?)`,
		o.ID, Unpaid, amount)
	if err != nil {
		return fmt.Errorf("store order %s: %w", o.ID, err)
	}
	return nil
}

// take takes an item from the stock if there is enough, and returns the price. The condition is in the UPDATE, so two
// customers cannot both get the last piece.
func (s *shop) take(ctx context.Context, tx *sql.Tx, item Item) (priceCents int64, err error) {
	taken, err := s.db.Write(ctx, tx, `UPDATE demo_stock SET on_hand = on_hand - ? WHERE sku = ? AND on_hand >= ?`,
		item.Quantity, item.SKU, item.Quantity)
	if err != nil {
		return 0, fmt.Errorf("take %s: %w", item.SKU, err)
	}
	if taken != 1 {
		return 0, fmt.Errorf("%d of %s: %w", item.Quantity, item.SKU, ErrOutOfStock)
	}
	err = tx.QueryRowContext(ctx, s.db.SQL(`SELECT price_cents FROM demo_stock WHERE sku = ?`), item.SKU).Scan(&priceCents)
	return priceCents, err
}

// inLockOrder is the common order of all changes to the stock, so that no two transactions deadlock.
func inLockOrder(items []Item) []Item {
	return slices.SortedFunc(slices.Values(items), func(a, b Item) int { return strings.Compare(a.SKU, b.SKU) })
}

// ErrNotUnpaid means that an order was paid or cancelled before.
var ErrNotUnpaid = errors.New("the order is not unpaid")

// pay marks an unpaid order as paid.
func (s *shop) pay(ctx context.Context, tx *sql.Tx, id string) error {
	changed, err := s.move(ctx, tx, id, Paid)
	if err == nil && !changed {
		err = ErrNotUnpaid
	}
	return err
}

// cancel cancels an unpaid order and returns its items to the stock. The result says whether the order was unpaid.
func (s *shop) cancel(ctx context.Context, tx *sql.Tx, id string) (bool, error) {
	cancelled, err := s.move(ctx, tx, id, Cancelled)
	if err != nil || !cancelled {
		return false, err
	}
	items, err := s.items(ctx, tx, id)
	if err != nil {
		return false, err
	}
	for _, item := range inLockOrder(items) {
		if _, err := s.db.Write(ctx, tx, `UPDATE demo_stock SET on_hand = on_hand + ? WHERE sku = ?`,
			item.Quantity, item.SKU); err != nil {
			return false, fmt.Errorf("put %s back: %w", item.SKU, err)
		}
	}
	return true, nil
}

// move changes the state of an unpaid order. Of a payment and a cancellation at once, only one changes the row.
func (s *shop) move(ctx context.Context, tx *sql.Tx, id, state string) (bool, error) {
	changed, err := s.db.Write(ctx, tx, `UPDATE demo_orders SET state = ? WHERE id = ? AND state = ?`, state, id, Unpaid)
	if err != nil {
		return false, fmt.Errorf("make order %s %s: %w", id, state, err)
	}
	return changed == 1, nil
}

// Stored is an order in the database.
type Stored struct {
	ID          string `json:"order_id"`
	State       string `json:"state"`
	AmountCents int64  `json:"amount_cents"`
	Items       []Item `json:"items"`
}

// ErrNoOrder means that an order does not exist.
var ErrNoOrder = errors.New("there is no such order")

func (s *shop) look(ctx context.Context, id string) (Stored, error) {
	o := Stored{ID: id}
	err := s.db.QueryRowContext(ctx, s.db.SQL(`SELECT state, amount_cents FROM demo_orders WHERE id = ?`), id).
		Scan(&o.State, &o.AmountCents)
	if errors.Is(err, sql.ErrNoRows) {
		return Stored{}, fmt.Errorf("order %s: %w", id, ErrNoOrder)
	}
	if err == nil {
		o.Items, err = s.items(ctx, s.db, id)
	}
	if err != nil {
		return Stored{}, fmt.Errorf("look at order %s: %w", id, err)
	}
	return o, nil
}

// querier is the database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (s *shop) items(ctx context.Context, from querier, id string) ([]Item, error) {
	rows, err := from.QueryContext(ctx,
		s.db.SQL(`SELECT sku, quantity FROM demo_order_items WHERE order_id = ? ORDER BY sku`), id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var items []Item
	for rows.Next() {
		var item Item
		if err := rows.Scan(&item.SKU, &item.Quantity); err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, rows.Err()
}

// count returns the number of orders in each state.
func (s *shop) count(ctx context.Context) (map[string]int, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT state, COUNT(*) FROM demo_orders GROUP BY state`)
	if err != nil {
		return nil, fmt.Errorf("count orders: %w", err)
	}
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var state string
		var n int
		if err := rows.Scan(&state, &n); err != nil {
			return nil, fmt.Errorf("count orders: %w", err)
		}
		counts[state] = n
	}
	return counts, rows.Err()
}
