// Package books balances the books of the demos' shop: each product is on sale or belongs to one order, each order has
// what its status promises, and each announced event was handled once.
package books

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/msghandler/msghandler/dev/demo/shop"
	"github.com/msghandler/msghandler/examples/database"
)

// Books is the result of a comparison.
type Books struct {
	// Placed is the number of orders, of which each has one of the statuses.
	Placed, Pending, Paid, Shipped, Completed, Cancelled int
	// ByTimeout and ByBuyer are the cancelled orders by their reasons.
	ByTimeout, ByBuyer int
	// Products is the number of products, of which each is on sale or sold.
	Products, OnSale, Sold int
	// Events are the events by their queues.
	Events []Events
	// Copies are the dropped deliveries.
	Copies []Copy
	// Wrong describes each mismatch.
	Wrong []string
}

// Events is how many events of a type the orders announced, and how many a consumer handled.
type Events struct {
	Type, Queue        string
	Announced, Handled int
}

// Copy is an event that was delivered again.
type Copy struct {
	Event       string
	Attempt     int
	Redelivered bool
}

// Flagged says whether the copy was marked as a redelivery.
func (c Copy) Flagged() bool { return c.Attempt > 1 || c.Redelivered }

// order is an order with what the consumers made of its events.
type order struct {
	placed                    bool
	product                   int64
	status                    shop.Status
	paid                      bool
	reason                    string
	reserved, shipped         int64 // the product; 0: none
	reservation               string
	view                      shop.Status
	inventoried, sent, viewed bool
}

// Read reads the books of a shop. While orders flow, the books need not balance.
func Read(ctx context.Context, db *database.DB) (Books, error) {
	r := reader{ctx: ctx, db: db, orders: map[int64]*order{}, handled: map[string]int{}, products: map[int64]string{}}
	// Effects come before their causes, so that a later event only makes an effect look late.
	r.effects()
	r.shop()
	if r.err != nil {
		return Books{}, fmt.Errorf("read the books: %w", r.err)
	}
	return r.balance(), nil
}

// reader reads tables until the first error.
type reader struct {
	ctx      context.Context
	db       *database.DB
	err      error
	orders   map[int64]*order
	products map[int64]string
	handled  map[string]int
	books    Books
}

func (r *reader) order(id int64) *order {
	if r.orders[id] == nil {
		r.orders[id] = &order{}
	}
	return r.orders[id]
}

// each scans the rows of a query into fields and calls use after each row.
func (r *reader) each(query string, fields []any, use func()) {
	if r.err != nil {
		return
	}
	rows, err := r.db.QueryContext(r.ctx, query)
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

func (r *reader) effects() {
	var id, product int64
	var text string
	var n int
	r.each(`SELECT consumer, COUNT(*) FROM msghandler_inbox GROUP BY consumer`, []any{&text, &n}, func() {
		r.handled[text] = n
	})
	r.each(`SELECT order_id, status FROM demo_order_views`, []any{&id, &text}, func() {
		o := r.order(id)
		o.view, o.viewed = shop.Status(text), true
	})
	r.each(`SELECT order_id, product_id FROM demo_shipments`, []any{&id, &product}, func() {
		o := r.order(id)
		o.shipped, o.sent = product, true
	})
	r.each(`SELECT order_id, product_id, outcome FROM demo_inventory`, []any{&id, &product, &text}, func() {
		o := r.order(id)
		o.reserved, o.reservation, o.inventoried = product, text, true
	})
	var c Copy
	r.each(`SELECT event, attempt, redelivered FROM demo_copies`, []any{&c.Event, &c.Attempt, &c.Redelivered}, func() {
		r.books.Copies = append(r.books.Copies, c)
	})
}

func (r *reader) shop() {
	b := &r.books
	var id, product int64
	var status, reason string
	var paid bool
	counts := map[shop.Status]*int{
		shop.Pending: &b.Pending, shop.Paid: &b.Paid, shop.Shipped: &b.Shipped, shop.Completed: &b.Completed,
		shop.Cancelled: &b.Cancelled,
	}
	r.each(`SELECT id, product_id, status, pay_time IS NOT NULL, COALESCE(cancel_reason, '') FROM demo_orders`,
		[]any{&id, &product, &status, &paid, &reason}, func() {
			o := r.order(id)
			o.placed, o.product, o.status, o.paid, o.reason = true, product, shop.Status(status), paid, reason
			b.Placed++
			if count := counts[o.status]; count != nil {
				*count++
			}
			switch reason {
			case shop.ByTimeout:
				b.ByTimeout++
			case shop.ByBuyer:
				b.ByBuyer++
			}
		})
	r.each(`SELECT id, status FROM demo_products`, []any{&id, &status}, func() {
		r.products[id] = status
		b.Products++
		if status == shop.OnSale {
			b.OnSale++
		} else {
			b.Sold++
		}
	})
}

func (r *reader) wrong(format string, args ...any) {
	r.books.Wrong = append(r.books.Wrong, fmt.Sprintf(format, args...))
}

// balance compares the orders with the products, the effects and the events.
func (r *reader) balance() Books {
	held := map[int64]int{}
	paid := 0
	for _, id := range slices.Sorted(maps.Keys(r.orders)) {
		o := r.orders[id]
		if o.placed && o.status != shop.Cancelled {
			held[o.product]++
		}
		if o.paid {
			paid++
		}
		r.compare(id, o)
	}
	for _, id := range slices.Sorted(maps.Keys(r.products)) {
		if status := r.products[id]; held[id] > 1 || (held[id] == 1) != (status == shop.Sold) {
			r.wrong("product %d is %s, and %d orders have it", id, status, held[id])
		}
	}
	b := &r.books
	shipped := b.Shipped + b.Completed
	for _, e := range []Events{
		{"ORDER_CREATED", shop.InventoryQueue, b.Placed, 0},
		{"ORDER_PAID", shop.FulfillmentQueue, paid, 0},
		{"ORDER_STATUS_CHANGED", shop.SyncQueue, shipped + b.Completed, 0},
		{"ORDER_TIMEOUT", shop.TimeoutQueue, b.Placed, 0},
	} {
		e.Handled = r.handled[e.Queue]
		b.Events = append(b.Events, e)
		if e.Handled != e.Announced {
			r.wrong("%d %s were announced, and %d handled", e.Announced, e.Type, e.Handled)
		}
	}
	return *b
}

// compare compares an order with its effects.
func (r *reader) compare(id int64, o *order) {
	shipped := o.status == shop.Shipped || o.status == shop.Completed
	switch {
	case !o.placed:
		r.wrong("order %d was never placed, and has effects", id)
	case !o.inventoried || o.reserved != o.product || o.reservation == shop.Skipped && o.status != shop.Cancelled:
		r.wrong("order %d has product %d, and the inventory %q product %d", id, o.product, o.reservation, o.reserved)
	case o.status == shop.Paid:
		r.wrong("order %d is paid, and not shipped", id)
	case o.paid != shipped:
		r.wrong("order %d is %s, and its payment is %t", id, o.status, o.paid)
	case o.sent != shipped || shipped && o.shipped != o.product:
		r.wrong("order %d is %s with product %d, and product %d was shipped", id, o.status, o.product, o.shipped)
	case o.viewed != shipped || shipped && o.view != o.status:
		r.wrong("order %d is %s, and its buyer sees %q", id, o.status, o.view)
	case (o.reason != "") != (o.status == shop.Cancelled):
		r.wrong("order %d is %s, and its reason to be cancelled is %q", id, o.status, o.reason)
	}
}
