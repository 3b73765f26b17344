package orders

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/msghandler/msghandler/internal/demo/database"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// onEach runs a test with a new shop on each database.
func onEach(t *testing.T, test func(t *testing.T, s *shop)) {
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
			var s *shop
			for range 2 { // the second time the tables exist
				if s, err = openShop(t.Context(), db); err != nil {
					t.Fatal(err)
				}
			}
			test(t, s)
		})
	}
}

func (s *shop) mustPlace(t *testing.T, o Order) {
	t.Helper()
	if err := s.db.InTx(t.Context(), func(tx *sql.Tx) error { return s.place(t.Context(), tx, o) }); err != nil {
		t.Fatal(err)
	}
}

func (s *shop) onHand(t *testing.T, sku string) (n int64) {
	t.Helper()
	query := s.db.SQL(`SELECT on_hand FROM demo_stock WHERE sku = ?`)
	if err := s.db.QueryRowContext(t.Context(), query, sku).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOrderTakesAllItemsOrNone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.mustPlace(t, Order{ID: "a", Items: []Item{{"teapot", 19}, {"cup", 2}}})
		o, err := s.look(t.Context(), "a")
		if err != nil || o.State != Unpaid || o.AmountCents != 19*4900+2*1250 || len(o.Items) != 2 {
			t.Errorf("stored %+v, %v", o, err)
		}
		cups := s.onHand(t, "cup")
		for id, items := range map[string][]Item{
			"A": {{"cup", 1}, {"teapot", 2}}, "b": {{"cup", 1}, {"unicorn", 1}}, "a": {{"cup", 1}},
		} {
			err := s.db.InTx(t.Context(), func(tx *sql.Tx) error {
				return s.place(t.Context(), tx, Order{ID: id, Items: items})
			})
			if err == nil || errors.Is(err, ErrOutOfStock) != (id != "a") {
				t.Errorf("order %s: %v", id, err)
			}
		}
		_, err = s.look(t.Context(), "b")
		if !errors.Is(err, ErrNoOrder) || s.onHand(t, "cup") != cups || s.onHand(t, "teapot") != 1 {
			t.Errorf("after orders that failed: %v, %d cups, want %d", err, s.onHand(t, "cup"), cups)
		}
	})
}

func TestLastPieceIsSoldOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		const customers = 40
		sold := make(chan bool, customers)
		var all sync.WaitGroup
		for i := range customers {
			all.Go(func() {
				items := []Item{{"teapot", 1}, {"tea", 1}}
				if i%2 == 0 {
					slices.Reverse(items)
				}
				o := Order{ID: fmt.Sprint(i), Items: items}
				err := s.db.InTx(t.Context(), func(tx *sql.Tx) error { return s.place(t.Context(), tx, o) })
				if err != nil && !errors.Is(err, ErrOutOfStock) {
					t.Error(err)
				}
				sold <- err == nil
			})
		}
		all.Wait()
		n := 0
		for range customers {
			if <-sold {
				n++
			}
		}
		if n != 20 || s.onHand(t, "teapot") != 0 || s.onHand(t, "tea") != 100_000-20 {
			t.Errorf("%d of 20 teapots sold, %d left, and %d tea", n, s.onHand(t, "teapot"), s.onHand(t, "tea"))
		}
	})
}

// The customer pays at the very moment of the time limit, and the reminder is delivered twice.
func TestOrderIsPaidOrCancelledNeverBoth(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		for i := range 50 {
			id := fmt.Sprint(i)
			s.mustPlace(t, Order{ID: id, Items: []Item{{"tea", 1}}})
			ends := make(chan string, 3)
			var all sync.WaitGroup
			pay := func(tx *sql.Tx) error { return s.pay(t.Context(), tx, id) }
			cancel := func(tx *sql.Tx) error {
				done, err := s.cancel(t.Context(), tx, id)
				if err == nil && !done {
					err = ErrNotUnpaid
				}
				return err
			}
			for _, end := range []struct {
				state string
				work  func(tx *sql.Tx) error
			}{{Paid, pay}, {Cancelled, cancel}, {Cancelled, cancel}} {
				all.Go(func() {
					switch err := s.db.InTx(t.Context(), end.work); {
					case err == nil:
						ends <- end.state
					case !errors.Is(err, ErrNotUnpaid):
						t.Error(err)
					}
				})
			}
			all.Wait()
			close(ends)
			state := <-ends
			if second, twice := <-ends; twice {
				t.Fatalf("order %s became %s and %s", id, state, second)
			}
			if o, err := s.look(t.Context(), id); err != nil || o.State != state {
				t.Fatalf("order %s: the result was %q, the stored order is %+v, %v", id, state, o, err)
			}
		}
		counts, err := s.count(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if left := s.onHand(t, "tea"); left != int64(100_000-counts[Paid]) {
			t.Errorf("%d paid, %d cancelled, and %d tea left", counts[Paid], counts[Cancelled], left)
		}
	})
}

func TestMalformedOrderIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"id":"1","items":[{"sku":"tea","quantity":2}],"fail":"silent"}`: "",
		`{"id":"1"}`:   "no items",
		`{"items":[]}`: "no id",
		`[]`:           "looks like",
		`{"id":"1","items":[{"sku":"tea","quantity":0}]}`:                        "quantity",
		`{"id":"1","items":[{"sku":"tea","quantity":-1}]}`:                       "quantity",
		`{"id":"1","items":[{"sku":"t","quantity":1},{"sku":"t","quantity":1}]}`: "twice",
		`{"id":"1","items":[{"sku":"tea","quantity":2}],"fail":"spontaneously"}`: "spontaneously",
	} {
		_, err := parse([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
