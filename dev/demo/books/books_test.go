package books_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/demo/books"
	"github.com/msghandler/msghandler/dev/demo/consumers"
	"github.com/msghandler/msghandler/examples/database"
)

// open makes balanced books: order 1 is completed, 2 timed out, 3 pending, 4 shipped, 5 cancelled by its buyer.
func open(t *testing.T) *database.DB {
	t.Helper()
	db, err := database.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	_, err = consumers.Open(t.Context(), consumers.Config{
		URL: "amqp://127.0.0.1:1/", Database: db, PayWithin: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`INSERT INTO demo_products VALUES (1, 7, 500, 'sold'), (2, 7, 500, 'on_sale'), (3, 7, 500, 'sold'),
			(4, 7, 500, 'sold')`,
		`INSERT INTO demo_orders VALUES (1, 'a', 8, 1, 1, 500, 'completed', 1, 2, NULL),
			(2, 'b', 8, 2, 1, 500, 'cancelled', 1, NULL, 'timeout'), (3, 'c', 8, 3, 1, 500, 'pending', 1, NULL, NULL),
			(4, 'd', 8, 4, 1, 500, 'shipped', 1, 2, NULL), (5, 'e', 8, 2, 1, 500, 'cancelled', 1, NULL, 'buyer')`,
		`INSERT INTO demo_inventory VALUES (1, 1, 'reserved'), (2, 2, 'reserved'), (3, 3, 'reserved'), (4, 4, 'reserved'),
			(5, 2, 'skipped')`,
		`INSERT INTO demo_shipments VALUES (1, 1), (4, 4)`,
		`INSERT INTO demo_order_views VALUES (1, 'completed'), (4, 'shipped')`,
		`INSERT INTO msghandler_inbox (consumer, message, created_at)
			SELECT 'inventory.update.queue', CAST(id AS BLOB), 1 FROM demo_orders`,
		`INSERT INTO msghandler_inbox (consumer, message, created_at)
			SELECT 'order.timeout.queue', CAST(id AS BLOB), 1 FROM demo_orders`,
		`INSERT INTO msghandler_inbox (consumer, message, created_at) VALUES ('order.fulfillment.queue', X'31', 1),
			('order.fulfillment.queue', X'34', 1), ('order.status.sync.queue', X'31', 1), ('order.status.sync.queue', X'32', 1),
			('order.status.sync.queue', X'34', 1)`,
		`INSERT INTO demo_copies VALUES ('1', 1, TRUE), ('1', 2, FALSE), ('1', 1, FALSE)`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

func TestBooksBalance(t *testing.T) {
	t.Parallel()
	b, err := books.Read(t.Context(), open(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Wrong) > 0 || b.Placed != 5 || b.Pending != 1 || b.Shipped != 1 || b.Completed != 1 || b.Cancelled != 2 ||
		b.ByTimeout != 1 || b.ByBuyer != 1 || b.Products != 4 || b.OnSale != 1 || b.Sold != 3 || len(b.Copies) != 3 {
		t.Errorf("%+v", b)
	}
	if !b.Copies[0].Flagged() || !b.Copies[1].Flagged() || b.Copies[2].Flagged() {
		t.Errorf("copies %+v", b.Copies)
	}
}

func TestBooksReportEachMismatch(t *testing.T) {
	t.Parallel()
	for mistake, want := range map[string]string{
		`UPDATE demo_products SET status = 'on_sale' WHERE id = 1`:                "product 1 is on_sale, and 1 orders",
		`UPDATE demo_products SET status = 'sold' WHERE id = 2`:                   "product 2 is sold, and 0 orders",
		`UPDATE demo_orders SET product_id = 3 WHERE id = 1`:                      "product 3 is sold, and 2 orders",
		`DELETE FROM demo_inventory WHERE order_id = 2`:                           "order 2 has product 2, and the inventory",
		`UPDATE demo_inventory SET product_id = 1 WHERE order_id = 2`:             "order 2 has product 2, and the inventory",
		`UPDATE demo_inventory SET outcome = 'skipped' WHERE order_id = 3`:        "order 3 has product 3, and the inventory",
		`UPDATE demo_orders SET status = 'paid' WHERE id = 4`:                     "order 4 is paid, and not shipped",
		`UPDATE demo_orders SET pay_time = NULL WHERE id = 4`:                     "its payment is false",
		`UPDATE demo_orders SET pay_time = 5 WHERE id = 2`:                        "its payment is true",
		`DELETE FROM demo_shipments WHERE order_id = 4`:                           "order 4 is shipped with product 4",
		`INSERT INTO demo_shipments VALUES (3, 3)`:                                "order 3 is pending with product 3",
		`UPDATE demo_order_views SET status = 'shipped'`:                          "its buyer sees \"shipped\"",
		`DELETE FROM demo_order_views WHERE order_id = 4`:                         "its buyer sees \"\"",
		`UPDATE demo_orders SET cancel_reason = NULL WHERE id = 2`:                "its reason to be cancelled is \"\"",
		`INSERT INTO demo_inventory VALUES (9, 3, 'reserved')`:                    "order 9 was never placed",
		`DELETE FROM msghandler_inbox WHERE consumer = 'order.timeout.queue'`:     "5 ORDER_TIMEOUT were announced, and 0",
		`DELETE FROM msghandler_inbox WHERE consumer = 'inventory.update.queue'`:  "5 ORDER_CREATED",
		`DELETE FROM msghandler_inbox WHERE consumer = 'order.fulfillment.queue'`: "2 ORDER_PAID",
		`DELETE FROM msghandler_inbox WHERE consumer = 'order.status.sync.queue'`: "3 ORDER_STATUS_CHANGED",
	} {
		db := open(t)
		if _, err := db.ExecContext(t.Context(), mistake); err != nil {
			t.Fatal(err)
		}
		b, err := books.Read(t.Context(), db)
		if err != nil || len(b.Wrong) == 0 || !strings.Contains(strings.Join(b.Wrong, "\n"), want) {
			t.Errorf("%s: %v, %v; want %q", mistake, b.Wrong, err, want)
		}
	}
}
