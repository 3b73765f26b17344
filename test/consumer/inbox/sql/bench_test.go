package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// The cost of the inbox next to transactions with the effect alone, and the speed of dropping copies. Each figure is
// of 2,000 messages, 8 at a time.
func BenchmarkEffects(b *testing.B) {
	for dialect, open := range map[sqlinbox.Dialect]func() (driver, dsn string){
		sqlinbox.PostgreSQL: func() (string, string) { d := servers.PostgreSQL(b); return d.Driver, d.DSN },
		sqlinbox.MySQL:      func() (string, string) { d := servers.MariaDB(b); return d.Driver, d.DSN },
		sqlinbox.SQLite: func() (string, string) {
			return "sqlite", "file:" + filepath.Join(b.TempDir(), "db") +
				"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
		},
	} {
		b.Run(dialect.String(), func(b *testing.B) {
			driver, dsn := open()
			d := database{dialect, driver, dsn}
			db := d.open(b)
			db.SetMaxIdleConns(8)
			h := d.inbox(b, db, nil).Handler(d.pay)
			for n := range b.N {
				id := func(i int) string { return fmt.Sprintf("%d-%d", n, i) }
				rate(b, "plain/s", func(i int) error { return plain(b.Context(), db, d, id(i)) })
				rate(b, "effects/s", func(i int) error { return h.Handle(b.Context(), order(id(i))) })
				rate(b, "duplicates/s", func(i int) error {
					if err := h.Handle(b.Context(), order(id(i))); !errors.Is(err, consumer.ErrDuplicate) {
						return errors.New("not a duplicate: " + strconv.Itoa(i))
					}
					return nil
				})
			}
		})
	}
}

// plain is the effect alone.
func plain(ctx context.Context, db *sql.DB, d database, id string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := d.pay(ctx, tx, order(id)); err != nil {
		return err
	}
	return tx.Commit()
}

func rate(b *testing.B, unit string, do func(i int) error) {
	b.Helper()
	const all = 2000
	var next atomic.Int64
	var doing sync.WaitGroup
	begun := time.Now()
	for range 8 {
		doing.Go(func() {
			for i := next.Add(1); i <= all; i = next.Add(1) {
				if err := do(int(i)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	doing.Wait()
	b.ReportMetric(all/time.Since(begun).Seconds(), unit)
}
