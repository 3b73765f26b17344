package books_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/demo/books"
	"github.com/msghandler/msghandler/internal/demo/database"
	"github.com/msghandler/msghandler/internal/demo/payments"
)

// open makes balanced books: order 1 is paid, 2 cancelled, 3 unpaid.
func open(t *testing.T) *database.DB {
	t.Helper()
	db, err := database.Open("sqlite:" + filepath.Join(t.TempDir(), "both.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	_, err = payments.Open(t.Context(), payments.Config{
		URL: "amqp://127.0.0.1:1/", Queue: "payments", Exchange: "orders", Database: db,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Create(t.Context(),
		`CREATE TABLE demo_stock (sku TEXT, stocked INT, on_hand INT)`,
		`CREATE TABLE demo_orders (id TEXT, state TEXT, amount_cents INT)`,
		`CREATE TABLE demo_order_items (order_id TEXT, sku TEXT, quantity INT)`,
		`INSERT INTO demo_stock VALUES ('tea', 10, 7), ('cup', 10, 9)`,
		`INSERT INTO demo_orders VALUES ('1', 'paid', 30), ('2', 'cancelled', 50), ('3', 'unpaid', 10)`,
		`INSERT INTO demo_order_items VALUES ('1', 'tea', 2), ('1', 'cup', 1), ('2', 'tea', 5), ('3', 'tea', 1)`,
		`INSERT INTO demo_payments VALUES ('1', 30)`,
		`INSERT INTO demo_shipments VALUES ('1', 'tea', 2), ('1', 'cup', 1)`,
		`INSERT INTO demo_copies VALUES ('1', 1, TRUE), ('1', 2, FALSE), ('1', 1, FALSE)`,
	); err != nil {
		t.Fatal(err)
	}
	return db
}

func TestBooksBalance(t *testing.T) {
	t.Parallel()
	db := open(t)
	b, err := books.Read(t.Context(), db, db)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Wrong) > 0 || b.Placed != 3 || b.Paid != 1 || b.Cancelled != 1 || b.Unpaid != 1 || b.Booked != 1 ||
		b.BookedCents != 30 || b.Stocked != 20 || b.Left != 16 || b.Shipped != 3 || len(b.Copies) != 3 {
		t.Errorf("%+v", b)
	}
	if !b.Copies[0].Flagged() || !b.Copies[1].Flagged() || b.Copies[2].Flagged() {
		t.Errorf("copies %+v", b.Copies)
	}
}

func TestBooksReportEachMismatch(t *testing.T) {
	t.Parallel()
	for mistake, want := range map[string]string{
		`DELETE FROM demo_payments WHERE order_id = '1'`:            "order 1 is over 30",
		`DELETE FROM demo_shipments WHERE sku = 'cup'`:              "order 1 is over 30",
		`UPDATE demo_shipments SET quantity = 4 WHERE sku = 'tea'`:  "order 1 is over 30",
		`UPDATE demo_payments SET amount_cents = 31`:                "order 1 is over 30",
		`INSERT INTO demo_payments VALUES ('2', 50)`:                "order 2 is cancelled, and booked",
		`INSERT INTO demo_shipments VALUES ('3', 'tea', 1)`:         "order 3 is unpaid, and booked",
		`INSERT INTO demo_payments VALUES ('4', 10)`:                "order 4 was never placed",
		`INSERT INTO demo_order_items VALUES ('4', 'tea', 1)`:       "order 4 was never placed",
		`INSERT INTO demo_orders VALUES ('4', 'paid', 10)`:          "order 4 is paid, and neither",
		`UPDATE demo_stock SET on_hand = 6 WHERE sku = 'tea'`:       "1 pieces of tea",
		`UPDATE demo_orders SET state = 'cancelled' WHERE id = '3'`: "1 pieces of tea",
	} {
		db := open(t)
		if err := db.Create(t.Context(), mistake); err != nil {
			t.Fatal(err)
		}
		b, err := books.Read(t.Context(), db, db)
		if err != nil || len(b.Wrong) == 0 || !strings.Contains(strings.Join(b.Wrong, "\n"), want) {
			t.Errorf("%s: %v, %v; want %q", mistake, b.Wrong, err, want)
		}
	}
}
