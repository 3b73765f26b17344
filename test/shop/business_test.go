package shop_test

import (
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/demo/shop"
)

// placeAt places an order without an announcement.
func (w *world) placeAt(id, product int64, at time.Time) error {
	return w.inTx(func(tx *sql.Tx) error {
		return w.shop.Place(w.Context(), tx, shop.Order{
			ID: id, OrderNo: shop.OrderNo(id), BuyerID: 7, ProductID: product, Quantity: 1, Price: 500, CreateTime: at,
		})
	})
}

func TestProductIsSoldOnce(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(w *world) {
		const buyers = 30
		results := make(chan error, buyers)
		var all sync.WaitGroup
		for i := range buyers {
			all.Go(func() { results <- w.placeAt(int64(i+1), 5, time.Now()) })
		}
		all.Wait()
		sold := 0
		for range buyers {
			switch err := <-results; {
			case err == nil:
				sold++
			case !errors.Is(err, shop.ErrSold):
				w.Error(err)
			}
		}
		if p, err := w.shop.Product(w.Context(), 5); sold != 1 || err != nil || p.Status != shop.Sold {
			w.Errorf("sold %d times: %+v, %v", sold, p, err)
		}
		if err := w.placeAt(1000, products+1, time.Now()); !errors.Is(err, shop.ErrSold) {
			w.Errorf("a product that does not exist: %v", err)
		}
	})
}

// The buyer pays at the very moment of the time limit, and the time-out and the sweep come at the same moment.
func TestOrderIsPaidOrCancelled(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(w *world) {
		for id := int64(1); id <= 30; id++ {
			created := time.Now().Add(-time.Minute)
			if err := w.placeAt(id, id, created); err != nil {
				w.Fatal(err)
			}
			won := make(chan shop.Status, 3)
			var all sync.WaitGroup
			end := func(status shop.Status, change func(tx *sql.Tx) error) {
				all.Go(func() {
					switch err := w.inTx(change); {
					case err == nil:
						won <- status
					case !errors.Is(err, shop.ErrStatus):
						w.Error(err)
					}
				})
			}
			end(shop.Paid, func(tx *sql.Tx) error { return w.shop.Pay(w.Context(), tx, id, time.Now()) })
			for range 2 {
				end(shop.Cancelled, func(tx *sql.Tx) error { return w.shop.TimeOut(w.Context(), tx, id, created) })
			}
			all.Wait()
			close(won)
			status := <-won
			if second, twice := <-won; twice {
				w.Fatalf("order %d became %s and %s", id, status, second)
			}
			p, err := w.shop.Product(w.Context(), id)
			if o, lost := w.shop.Look(w.Context(), id); lost != nil || err != nil || o.Status != status ||
				(p.Status == shop.Sold) != (status == shop.Paid) || (o.CancelReason == shop.ByTimeout) != (status != shop.Paid) {
				w.Fatalf("the result was %q, the stored order is %+v and its product %+v, %v", status, o, p, errors.Join(err, lost))
			}
		}
	})
}

func TestOnlyOverdueOrdersTimeOut(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(w *world) {
		now := time.Now()
		for id, age := range []time.Duration{time.Hour, time.Hour, time.Minute} {
			if err := w.placeAt(int64(id+1), int64(id+1), now.Add(-age)); err != nil {
				w.Fatal(err)
			}
		}
		if err := w.inTx(func(tx *sql.Tx) error { return w.shop.Pay(w.Context(), tx, 2, now) }); err != nil {
			w.Fatal(err)
		}
		early := w.inTx(func(tx *sql.Tx) error { return w.shop.TimeOut(w.Context(), tx, 3, now.Add(-time.Hour)) })
		if !errors.Is(early, shop.ErrStatus) {
			w.Errorf("an order was timed out before its deadline: %v", early)
		}
		if n, err := w.shop.CloseOverdue(w.Context(), now.Add(-30*time.Minute), 10); n != 1 || err != nil {
			w.Errorf("closed %d, %v", n, err)
		}
		for id, want := range map[int64]shop.Status{1: shop.Cancelled, 2: shop.Paid, 3: shop.Pending} {
			if o, err := w.shop.Look(w.Context(), id); err != nil || o.Status != want {
				w.Errorf("%+v, %v, want %s", o, err, want)
			}
		}
	})
}

// An overdue order that cannot be closed stops no later one.
func TestFailedOrderStopsNoOther(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(w *world) {
		long := time.Now().Add(-time.Hour)
		if err := errors.Join(w.placeAt(1, 1, long.Add(-time.Hour)), w.placeAt(2, 2, long)); err != nil {
			w.Fatal(err)
		}
		// Then the product of the older order cannot be given back.
		if _, err := w.db.ExecContext(w.Context(), `UPDATE demo_products SET status = 'on_sale' WHERE id = 1`); err != nil {
			w.Fatal(err)
		}
		if n, err := w.shop.CloseOverdue(w.Context(), time.Now(), 10); n != 1 || err == nil {
			w.Errorf("closed %d, %v", n, err)
		}
		if o, err := w.shop.Look(w.Context(), 2); err != nil || o.Status != shop.Cancelled {
			w.Errorf("%+v, %v", o, err)
		}
	})
}

func TestCancelledOrderIsNotReserved(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(w *world) {
		if err := w.placeAt(1, 1, time.Now()); err != nil {
			w.Fatal(err)
		}
		err := w.inTx(func(tx *sql.Tx) error {
			return errors.Join(w.shop.Cancel(w.Context(), tx, 1), w.shop.Reserve(w.Context(), tx, 1, 1))
		})
		var outcome string
		if err == nil {
			err = w.db.QueryRowContext(w.Context(), `SELECT outcome FROM demo_inventory WHERE order_id = 1`).Scan(&outcome)
		}
		if err != nil || outcome != shop.Skipped {
			w.Errorf("%q, %v", outcome, err)
		}
		notPaid := w.inTx(func(tx *sql.Tx) error { return w.shop.Ship(w.Context(), tx, 1) })
		if !errors.Is(notPaid, shop.ErrStatus) {
			w.Errorf("shipped without a payment: %v", notPaid)
		}
	})
}

// Events of one order may overtake each other.
func TestViewNeverGoesBack(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(w *world) {
		for _, status := range []shop.Status{shop.Completed, shop.Shipped} {
			err := w.inTx(func(tx *sql.Tx) error { return w.shop.Sync(w.Context(), tx, 1, status) })
			if err != nil {
				w.Fatal(err)
			}
		}
		var status shop.Status
		row := w.db.QueryRowContext(w.Context(), `SELECT status FROM demo_order_views WHERE order_id = 1`)
		if err := row.Scan(&status); err != nil || status != shop.Completed {
			w.Errorf("%q, %v", status, err)
		}
	})
}
