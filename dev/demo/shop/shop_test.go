package shop_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/msghandler/msghandler/dev/demo/database"
	"github.com/msghandler/msghandler/dev/demo/shop"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

const products = 60

// bench is a shop and its database.
type bench struct {
	*testing.T
	*shop.Shop
	db *database.DB
}

// onEach runs a test with a new shop on each database.
func onEach(t *testing.T, test func(b bench)) {
	t.Parallel()
	names := map[string]func(t *testing.T) string{
		"sqlite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "a file.db") },
		"postgresql": func(t *testing.T) string { return servers.PostgreSQL(t).DSN },
		"mariadb": func(t *testing.T) string {
			dsn, err := mysql.ParseDSN(servers.MariaDB(t).DSN)
			if err != nil {
				t.Fatal(err)
			}
			return "mariadb://" + dsn.User + "@" + dsn.Addr + "/" + dsn.DBName
		},
	}
	for kind, name := range names {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db, err := database.Open(name(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			var s *shop.Shop
			for range 2 { // the second time everything exists
				if s, err = shop.Open(t.Context(), db, products); err != nil {
					t.Fatal(err)
				}
			}
			test(bench{t, s, db})
		})
	}
}

func (b bench) in(change func(ctx context.Context, tx *sql.Tx) error) error {
	return b.db.InTx(b.Context(), func(tx *sql.Tx) error { return change(b.Context(), tx) })
}

func (b bench) place(id, product int64, at time.Time) error {
	return b.in(func(ctx context.Context, tx *sql.Tx) error {
		return b.Place(ctx, tx, shop.Order{
			ID: id, OrderNo: shop.OrderNo(id), BuyerID: 7, ProductID: product, Quantity: 1, Price: 500, CreateTime: at,
		})
	})
}

func TestProductIsSoldOnce(t *testing.T) {
	onEach(t, func(b bench) {
		const buyers = 30
		results := make(chan error, buyers)
		var all sync.WaitGroup
		for i := range buyers {
			all.Go(func() { results <- b.place(int64(i+1), 5, time.Now()) })
		}
		all.Wait()
		sold := 0
		for range buyers {
			switch err := <-results; {
			case err == nil:
				sold++
			case !errors.Is(err, shop.ErrSold):
				b.Error(err)
			}
		}
		if p, err := b.Product(b.Context(), 5); sold != 1 || err != nil || p.Status != shop.Sold {
			b.Errorf("sold %d times: %+v, %v", sold, p, err)
		}
		if err := b.place(1000, products+1, time.Now()); !errors.Is(err, shop.ErrSold) {
			b.Errorf("a product that does not exist: %v", err)
		}
	})
}

// The buyer pays at the very moment of the time limit, and the time-out and the sweep come at the same moment.
func TestOrderIsPaidOrCancelled(t *testing.T) {
	onEach(t, func(b bench) {
		for id := int64(1); id <= 30; id++ {
			created := time.Now().Add(-time.Minute)
			if err := b.place(id, id, created); err != nil {
				b.Fatal(err)
			}
			won := make(chan shop.Status, 3)
			var all sync.WaitGroup
			end := func(status shop.Status, change func(ctx context.Context, tx *sql.Tx) error) {
				all.Go(func() {
					switch err := b.in(change); {
					case err == nil:
						won <- status
					case !errors.Is(err, shop.ErrStatus):
						b.Error(err)
					}
				})
			}
			end(shop.Paid, func(ctx context.Context, tx *sql.Tx) error { return b.Pay(ctx, tx, id, time.Now()) })
			for range 2 {
				end(shop.Cancelled, func(ctx context.Context, tx *sql.Tx) error { return b.TimeOut(ctx, tx, id, created) })
			}
			all.Wait()
			close(won)
			status := <-won
			if second, twice := <-won; twice {
				b.Fatalf("order %d became %s and %s", id, status, second)
			}
			p, err := b.Product(b.Context(), id)
			if o, lost := b.Look(b.Context(), id); lost != nil || err != nil || o.Status != status ||
				(p.Status == shop.Sold) != (status == shop.Paid) || (o.CancelReason == shop.ByTimeout) != (status != shop.Paid) {
				b.Fatalf("the result was %q, the stored order is %+v and its product %+v, %v", status, o, p, errors.Join(err, lost))
			}
		}
	})
}

func TestOnlyOverdueOrdersTimeOut(t *testing.T) {
	onEach(t, func(b bench) {
		now := time.Now()
		for id, age := range []time.Duration{time.Hour, time.Hour, time.Minute} {
			if err := b.place(int64(id+1), int64(id+1), now.Add(-age)); err != nil {
				b.Fatal(err)
			}
		}
		if err := b.in(func(ctx context.Context, tx *sql.Tx) error { return b.Pay(ctx, tx, 2, now) }); err != nil {
			b.Fatal(err)
		}
		early := b.in(func(ctx context.Context, tx *sql.Tx) error { return b.TimeOut(ctx, tx, 3, now.Add(-time.Hour)) })
		if !errors.Is(early, shop.ErrStatus) {
			b.Errorf("an order was timed out before its deadline: %v", early)
		}
		if n, err := b.CloseOverdue(b.Context(), now.Add(-30*time.Minute), 10); n != 1 || err != nil {
			b.Errorf("closed %d, %v", n, err)
		}
		for id, want := range map[int64]shop.Status{1: shop.Cancelled, 2: shop.Paid, 3: shop.Pending} {
			if o, err := b.Look(b.Context(), id); err != nil || o.Status != want {
				b.Errorf("%+v, %v, want %s", o, err, want)
			}
		}
	})
}

// An overdue order that cannot be closed stops no later one.
func TestFailedOrderStopsNoOther(t *testing.T) {
	onEach(t, func(b bench) {
		long := time.Now().Add(-time.Hour)
		if err := errors.Join(b.place(1, 1, long.Add(-time.Hour)), b.place(2, 2, long)); err != nil {
			b.Fatal(err)
		}
		// Then the product of the older order cannot be given back.
		if _, err := b.db.ExecContext(b.Context(), `UPDATE demo_products SET status = 'on_sale' WHERE id = 1`); err != nil {
			b.Fatal(err)
		}
		if n, err := b.CloseOverdue(b.Context(), time.Now(), 10); n != 1 || err == nil {
			b.Errorf("closed %d, %v", n, err)
		}
		if o, err := b.Look(b.Context(), 2); err != nil || o.Status != shop.Cancelled {
			b.Errorf("%+v, %v", o, err)
		}
	})
}

func TestCancelledOrderIsNotReserved(t *testing.T) {
	onEach(t, func(b bench) {
		if err := b.place(1, 1, time.Now()); err != nil {
			b.Fatal(err)
		}
		err := b.in(func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(b.Cancel(ctx, tx, 1), b.Reserve(ctx, tx, 1, 1))
		})
		var outcome string
		if err == nil {
			err = b.db.QueryRowContext(b.Context(), `SELECT outcome FROM demo_inventory WHERE order_id = 1`).Scan(&outcome)
		}
		if err != nil || outcome != shop.Skipped {
			b.Errorf("%q, %v", outcome, err)
		}
		notPaid := b.in(func(ctx context.Context, tx *sql.Tx) error { return b.Ship(ctx, tx, 1) })
		if !errors.Is(notPaid, shop.ErrStatus) {
			b.Errorf("shipped without a payment: %v", notPaid)
		}
	})
}

// Events of one order may overtake each other.
func TestViewNeverGoesBack(t *testing.T) {
	onEach(t, func(b bench) {
		for _, status := range []shop.Status{shop.Completed, shop.Shipped} {
			err := b.in(func(ctx context.Context, tx *sql.Tx) error { return b.Sync(ctx, tx, 1, status) })
			if err != nil {
				b.Fatal(err)
			}
		}
		var status shop.Status
		row := b.db.QueryRowContext(b.Context(), `SELECT status FROM demo_order_views WHERE order_id = 1`)
		if err := row.Scan(&status); err != nil || status != shop.Completed {
			b.Errorf("%q, %v", status, err)
		}
	})
}
