// Package books compares the two databases of the demos: every paid order of the order service is booked and shipped by
// the payment service, and no piece of the stock is missing or duplicated.
package books

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/msghandler/msghandler/internal/demo/database"
	"github.com/msghandler/msghandler/internal/demo/orders"
)

// Books is the result of a comparison.
type Books struct {
	// Placed is the number of orders, of which each is Unpaid, Paid or Cancelled.
	Placed, Unpaid, Paid, Cancelled int
	// Booked is the number of payments, BookedCents their sum.
	Booked      int
	BookedCents int64
	// Stocked is the initial stock in pieces, Left the stock now, and Shipped the pieces sent by the payment service.
	Stocked, Left, Shipped int64
	// Copies are the dropped deliveries.
	Copies []Copy
	// Wrong describes each mismatch.
	Wrong []string
}

// Copy is a redelivered order.
type Copy struct {
	ID          string
	Attempt     int
	Redelivered bool
}

// Flagged says whether the copy was marked as a redelivery.
func (c Copy) Flagged() bool { return c.Attempt > 1 || c.Redelivered }

// order is an order in both databases, with the pieces of each item.
type order struct {
	state   string
	amount  int64
	ordered map[string]int64
	booked  int64
	shipped map[string]int64
}

// Read compares the books of the order service and of the payment service, which may share a database. While a service
// works, the books need not balance.
func Read(ctx context.Context, ofOrders, ofPayments *database.DB) (Books, error) {
	r := reader{ctx: ctx, orders: map[string]*order{}}
	// The payments come first, so that a later payment only makes an order look unpaid.
	r.payments(ofPayments)
	r.ordered(ofOrders)
	if r.err != nil {
		return Books{}, fmt.Errorf("read the books: %w", r.err)
	}
	return r.balance(), nil
}

// reader reads tables until the first error.
type reader struct {
	ctx    context.Context
	err    error
	orders map[string]*order
	books  Books
	stock  map[string]int64 // pieces missing from the initial stock
}

func (r *reader) order(id string) *order {
	if r.orders[id] == nil {
		r.orders[id] = &order{ordered: map[string]int64{}, shipped: map[string]int64{}}
	}
	return r.orders[id]
}

// each scans the rows of a query into fields and calls use after each row.
func (r *reader) each(db *database.DB, query string, fields []any, use func()) {
	if r.err != nil {
		return
	}
	rows, err := db.QueryContext(r.ctx, query)
	if err != nil {
		r.err = err
		return
	}
	defer rows.Close()
	for rows.Next() {
		if r.err = rows.Scan(fields...); r.err != nil {
			return
		}
		use()
	}
	r.err = rows.Err()
}

func (r *reader) payments(db *database.DB) {
	var id, sku string
	var n int64
	r.each(db, `SELECT order_id, amount_cents FROM demo_payments`, []any{&id, &n}, func() {
		r.order(id).booked = n
		r.books.Booked++
		r.books.BookedCents += n
	})
	r.each(db, `SELECT order_id, sku, quantity FROM demo_shipments`, []any{&id, &sku, &n}, func() {
		r.order(id).shipped[sku] = n
		r.books.Shipped += n
	})
	var c Copy
	r.each(db, `SELECT order_id, attempt, redelivered FROM demo_copies`, []any{&c.ID, &c.Attempt, &c.Redelivered}, func() {
		r.books.Copies = append(r.books.Copies, c)
	})
}

func (r *reader) ordered(db *database.DB) {
	var id, sku, state string
	var n, left int64
	counts := map[string]*int{
		orders.Unpaid: &r.books.Unpaid, orders.Paid: &r.books.Paid, orders.Cancelled: &r.books.Cancelled,
	}
	r.each(db, `SELECT id, state, amount_cents FROM demo_orders`, []any{&id, &state, &n}, func() {
		o := r.order(id)
		o.state, o.amount = state, n
		r.books.Placed++
		*counts[state]++
	})
	r.each(db, `SELECT order_id, sku, quantity FROM demo_order_items`, []any{&id, &sku, &n}, func() {
		r.order(id).ordered[sku] = n
	})
	r.stock = map[string]int64{}
	r.each(db, `SELECT sku, stocked, on_hand FROM demo_stock`, []any{&sku, &n, &left}, func() {
		r.stock[sku] = n - left
		r.books.Stocked += n
		r.books.Left += left
	})
}

// balance compares both sides.
func (r *reader) balance() Books {
	wrong := func(format string, args ...any) { r.books.Wrong = append(r.books.Wrong, fmt.Sprintf(format, args...)) }
	for _, id := range slices.Sorted(maps.Keys(r.orders)) {
		o := r.orders[id]
		booked := o.booked != 0 || len(o.shipped) > 0
		switch {
		case o.state == "":
			wrong("order %s was never placed, and is booked, shipped, or has items", id)
		case o.state == orders.Paid && !booked:
			wrong("order %s is paid, and neither booked nor shipped", id)
		case o.state != orders.Paid && booked:
			wrong("order %s is %s, and booked or shipped", id, o.state)
		case booked && (o.booked != o.amount || !maps.Equal(o.shipped, o.ordered)):
			wrong("order %s is over %d cents and %v; %d and %v were booked and shipped",
				id, o.amount, o.ordered, o.booked, o.shipped)
		}
		if o.state == orders.Cancelled {
			continue
		}
		for sku, n := range o.ordered {
			r.stock[sku] -= n
		}
	}
	for sku, n := range r.stock {
		if n != 0 {
			wrong("%d pieces of %s have left the stock without an order", n, sku)
		}
	}
	return r.books
}
