// Package shop is the business of the demos: a second-hand shop, where each product is sold once. Package orders takes
// its orders and announces them; package consumers handles the announcements.
//
// An order takes its product in the same transaction, and gives the product back when the order is cancelled. Each
// change of an order is an UPDATE with the expected status in its condition, which must change exactly one row. So of
// a payment and a time-out at the same moment one wins, and the other sees that it came too late.
package shop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/msghandler/msghandler/examples/database"
)

// Producer is the name of the shop as a producer.
const Producer = "orders"

// Status is the status of an order.
type Status string

// The statuses. Completed and Cancelled are final.
const (
	Pending   Status = "pending"
	Paid      Status = "paid"
	Shipped   Status = "shipped"
	Completed Status = "completed"
	Cancelled Status = "cancelled"
)

// The statuses of a product.
const (
	OnSale = "on_sale"
	Sold   = "sold"
)

// Why an order was cancelled.
const (
	ByBuyer   = "buyer"
	ByTimeout = "timeout"
)

// Shop is the shop's database. Changes run in the caller's transaction.
type Shop struct{ db *database.DB }

// Open makes the tables where they are missing, and puts products on sale up to this number: 1, 2, 3 and so on.
func Open(ctx context.Context, db *database.DB, products int) (*Shop, error) {
	if err := createTables(ctx, db); err != nil {
		return nil, err
	}
	s := &Shop{db}
	return s, s.stock(ctx, products)
}

// stockBatch is how many products one statement inserts.
const stockBatch = 500

// stock adds the missing products. Several processes may do this at once: the primary key lets one of them win, and
// the others see its products.
func (s *Shop) stock(ctx context.Context, products int) error {
	for {
		var there int
		err := s.db.QueryRowContext(ctx, `SELECT COALESCE(MAX(id), 0) FROM demo_products`).Scan(&there)
		if err != nil || there >= products {
			return err
		}
		var rows []string
		for id := there + 1; id <= min(products, there+stockBatch); id++ {
			rows = append(rows, fmt.Sprintf("(%d, %d, %d, '%s')", id, 1+id%7, 500+10*(id%400), OnSale))
		}
		_, err = s.db.ExecContext(ctx,
			`INSERT INTO demo_products (id, seller_id, price, status) VALUES `+strings.Join(rows, ", "))
		if err == nil {
			continue
		}
		var now int
		if again := s.db.QueryRowContext(ctx, `SELECT COALESCE(MAX(id), 0) FROM demo_products`).Scan(&now); again != nil ||
			now == there {
			return fmt.Errorf("put products on sale: %w", err)
		}
	}
}

// Product is an article, of which there is one piece.
type Product struct {
	ID, SellerID, Price int64
	Status              string
}

// Order is an order in the database.
type Order struct {
	ID           int64      `json:"order_id"`
	OrderNo      string     `json:"order_no"`
	BuyerID      int64      `json:"buyer_id"`
	ProductID    int64      `json:"product_id"`
	Quantity     int64      `json:"quantity"`
	Price        int64      `json:"price"`
	Status       Status     `json:"status"`
	CreateTime   time.Time  `json:"create_time"`
	PayTime      *time.Time `json:"pay_time,omitempty"`
	CancelReason string     `json:"cancel_reason,omitempty"`
}

// OrderNo is the number that people see.
func OrderNo(id int64) string { return fmt.Sprintf("SH%010d", id) }

// The errors of a change. ErrNoOrder and ErrNoProduct name what does not exist.
var (
	ErrNoOrder   = errors.New("there is no such order")
	ErrNoProduct = errors.New("there is no such product")
	ErrSold      = errors.New("the product is sold")
	ErrStatus    = errors.New("the order's status does not allow this")
)

// querier is the database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Product shows a product.
func (s *Shop) Product(ctx context.Context, id int64) (Product, error) {
	return s.product(ctx, s.db, id)
}

func (s *Shop) product(ctx context.Context, from querier, id int64) (Product, error) {
	p := Product{ID: id}
	err := from.QueryRowContext(ctx, s.db.SQL(`SELECT seller_id, price, status FROM demo_products WHERE id = ?`), id).
		Scan(&p.SellerID, &p.Price, &p.Status)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoProduct
	}
	if err != nil {
		return Product{}, fmt.Errorf("product %d: %w", id, err)
	}
	return p, nil
}

// Look shows an order.
func (s *Shop) Look(ctx context.Context, id int64) (Order, error) { return s.look(ctx, s.db, id, "") }

// LookIn shows an order within a transaction, and keeps the order as it is until the transaction ends.
func (s *Shop) LookIn(ctx context.Context, tx *sql.Tx, id int64) (Order, error) {
	return s.look(ctx, tx, id, s.locked())
}

func (s *Shop) look(ctx context.Context, from querier, id int64, lock string) (Order, error) {
	o := Order{ID: id}
	var created int64
	var paid sql.NullInt64
	var reason sql.NullString
	err := from.QueryRowContext(ctx, s.db.SQL(`SELECT order_no, buyer_id, product_id, quantity, price, status, create_time,
		pay_time, cancel_reason FROM demo_orders WHERE id = ?`+lock), id).
		Scan(&o.OrderNo, &o.BuyerID, &o.ProductID, &o.Quantity, &o.Price, &o.Status, &created, &paid, &reason)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoOrder
	}
	if err != nil {
		return Order{}, fmt.Errorf("order %d: %w", id, err)
	}
	o.CreateTime, o.CancelReason = time.UnixMilli(created).UTC(), reason.String
	if paid.Valid {
		at := time.UnixMilli(paid.Int64).UTC()
		o.PayTime = &at
	}
	return o, nil
}

// Place stores a pending order and takes its product from sale. The condition is in the UPDATE, so two buyers cannot
// both get the product.
func (s *Shop) Place(ctx context.Context, tx *sql.Tx, o Order) error {
	err := s.one(ctx, tx, ErrSold, `UPDATE demo_products SET status = ? WHERE id = ? AND status = ?`,
		Sold, o.ProductID, OnSale)
	if err != nil {
		return fmt.Errorf("take product %d: %w", o.ProductID, err)
	}
	_, err = s.write(ctx, tx, `INSERT INTO demo_orders (id, order_no, buyer_id, product_id, quantity, price, status,
		create_time) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		o.ID, o.OrderNo, o.BuyerID, o.ProductID, o.Quantity, o.Price, string(Pending), o.CreateTime.UnixMilli())
	if err != nil {
		return fmt.Errorf("store order %d: %w", o.ID, err)
	}
	return nil
}

// Pay marks a pending order as paid.
func (s *Shop) Pay(ctx context.Context, tx *sql.Tx, id int64, at time.Time) error {
	err := s.one(ctx, tx, ErrStatus, `UPDATE demo_orders SET status = ?, pay_time = ? WHERE id = ? AND status = ?`,
		string(Paid), at.UnixMilli(), id, string(Pending))
	if err != nil {
		return fmt.Errorf("pay order %d: %w", id, err)
	}
	return nil
}

// Advance moves an order from one status to the next: from paid to shipped, or from shipped to completed.
func (s *Shop) Advance(ctx context.Context, tx *sql.Tx, id int64, from, to Status) error {
	err := s.one(ctx, tx, ErrStatus, `UPDATE demo_orders SET status = ? WHERE id = ? AND status = ?`,
		string(to), id, string(from))
	if err != nil {
		return fmt.Errorf("move order %d from %s to %s: %w", id, from, to, err)
	}
	return nil
}

// Cancel cancels a pending order for its buyer, and gives its product back.
func (s *Shop) Cancel(ctx context.Context, tx *sql.Tx, id int64) error {
	err := s.one(ctx, tx, ErrStatus, `UPDATE demo_orders SET status = ?, cancel_reason = ? WHERE id = ? AND status = ?`,
		string(Cancelled), ByBuyer, id, string(Pending))
	if err != nil {
		return fmt.Errorf("cancel order %d: %w", id, err)
	}
	return s.giveBack(ctx, tx, id)
}

// TimeOut cancels an order that is pending and was created at the deadline or before, and gives its product back. Any
// other order is ErrStatus: the buyer paid or cancelled in the meantime, or the time is not over.
func (s *Shop) TimeOut(ctx context.Context, tx *sql.Tx, id int64, deadline time.Time) error {
	err := s.one(ctx, tx, ErrStatus, `UPDATE demo_orders SET status = ?, cancel_reason = ?
		WHERE id = ? AND status = ? AND create_time <= ?`,
		string(Cancelled), ByTimeout, id, string(Pending), deadline.UnixMilli())
	if err != nil {
		return fmt.Errorf("time out order %d: %w", id, err)
	}
	return s.giveBack(ctx, tx, id)
}

// giveBack puts the product of a cancelled order on sale again.
func (s *Shop) giveBack(ctx context.Context, tx *sql.Tx, id int64) error {
	err := s.one(ctx, tx, errors.New("its product is not sold"), `UPDATE demo_products SET status = ?
		WHERE status = ? AND id = (SELECT product_id FROM demo_orders WHERE id = ?)`, OnSale, Sold, id)
	if err != nil {
		return fmt.Errorf("give the product of order %d back: %w", id, err)
	}
	return nil
}

// CloseOverdue times out orders that were created at the deadline or before, a batch at most, the oldest first. An
// order that was paid or cancelled since it was read stays as it is. An order that fails stops no other.
func (s *Shop) CloseOverdue(ctx context.Context, deadline time.Time, batch int) (closed int, err error) {
	ids, err := s.ids(ctx, `SELECT id FROM demo_orders WHERE status = ? AND create_time <= ? ORDER BY create_time LIMIT ?`,
		string(Pending), deadline.UnixMilli(), batch)
	if err != nil {
		return 0, fmt.Errorf("look for overdue orders: %w", err)
	}
	var failures []error
	for _, id := range ids {
		err := s.InTx(ctx, func(tx *sql.Tx) error { return s.TimeOut(ctx, tx, id, deadline) })
		switch {
		case err == nil:
			closed++
		case !errors.Is(err, ErrStatus):
			failures = append(failures, fmt.Errorf("close order %d: %w", id, err))
		}
	}
	return closed, errors.Join(failures...)
}

// WithStatus lists orders in a status, a batch at most.
func (s *Shop) WithStatus(ctx context.Context, status Status, batch int) ([]int64, error) {
	return s.ids(ctx, `SELECT id FROM demo_orders WHERE status = ? ORDER BY create_time LIMIT ?`, string(status), batch)
}

// Counts returns the number of orders in each status.
func (s *Shop) Counts(ctx context.Context) (map[Status]int, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT status, COUNT(*) FROM demo_orders GROUP BY status`)
	if err != nil {
		return nil, fmt.Errorf("count orders: %w", err)
	}
	defer rows.Close()
	counts := map[Status]int{}
	for rows.Next() {
		var status Status
		var n int
		if err := rows.Scan(&status, &n); err != nil {
			return nil, fmt.Errorf("count orders: %w", err)
		}
		counts[status] = n
	}
	return counts, rows.Err()
}
