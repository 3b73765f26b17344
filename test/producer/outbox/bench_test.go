package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// The cost of markers and messages, next to transactions with the order alone, and the speed of a relay whose sender
// does nothing. Each figure is of 2,000 orders, 8 at a time.
func BenchmarkOrders(b *testing.B) {
	const all = 2000
	for _, d := range []struct {
		dialect sqlmarker.Dialect
		open    func(testing.TB) (driver, dsn string)
	}{
		{sqlmarker.PostgreSQL, func(t testing.TB) (string, string) { d := servers.PostgreSQL(t); return d.Driver, d.DSN }},
		{sqlmarker.MySQL, func(t testing.TB) (string, string) { d := servers.MariaDB(t); return d.Driver, d.DSN }},
		{sqlmarker.SQLite, sqlite},
	} {
		b.Run(d.dialect.String(), func(b *testing.B) {
			for range b.N {
				driver, dsn := d.open(b)
				db := openDB(b, driver, dsn)
				db.SetMaxIdleConns(8)
				s := table(b, db, d.dialect)
				if _, err := db.ExecContext(b.Context(), "CREATE TABLE plain (id VARCHAR(64) PRIMARY KEY)"); err != nil {
					b.Fatal(err)
				}
				order := func(ctx context.Context, tx *sql.Tx, id string) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO plain (id) VALUES ('"+id+"')")
					return err
				}
				rate(b, "plain/s", all, func(id string) error { return plain(b.Context(), db, order, "plain-"+id) })
				rate(b, "marked/s", all, func(id string) error {
					return s.InTx(message("marked-"+id), func(ctx context.Context, tx *sql.Tx) error {
						return order(ctx, tx, "marked-"+id)
					})(b.Context())
				})
				rate(b, "enqueued/s", all, func(id string) error {
					return s.Commit(b.Context(), message("kept-"+id), func(ctx context.Context, tx *sql.Tx) error {
						return order(ctx, tx, "kept-"+id)
					})
				})
				r := relay(b, s, &sent{}, nil)
				begun := time.Now()
				for more := true; more; {
					var err error
					if more, err = r.Pass(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(all/time.Since(begun).Seconds(), "relayed/s")
			}
		})
	}
}

func plain(
	ctx context.Context, db *sql.DB, order func(context.Context, *sql.Tx, string) error, id string,
) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := order(ctx, tx, id); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

func rate(b *testing.B, unit string, all int, do func(id string) error) {
	b.Helper()
	var next atomic.Int64
	var doing sync.WaitGroup
	begun := time.Now()
	for range 8 {
		doing.Go(func() {
			for n := next.Add(1); n <= int64(all); n = next.Add(1) {
				if err := do(fmt.Sprint(n)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	doing.Wait()
	b.ReportMetric(float64(all)/time.Since(begun).Seconds(), unit)
}
