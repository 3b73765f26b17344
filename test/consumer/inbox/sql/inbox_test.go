// Package sql_test tests consumer/inbox/sql on PostgreSQL, MariaDB and SQLite.
package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// database is a database under test.
type database struct {
	dialect sqlinbox.Dialect
	driver  string
	dsn     string
}

// onEach runs a test on an empty database of each kind.
func onEach(t *testing.T, test func(t *testing.T, d database)) {
	t.Helper()
	for dialect, open := range map[sqlinbox.Dialect]func(t *testing.T) (driver, dsn string){
		sqlinbox.PostgreSQL: func(t *testing.T) (string, string) { d := servers.PostgreSQL(t); return d.Driver, d.DSN },
		sqlinbox.MySQL:      func(t *testing.T) (string, string) { d := servers.MariaDB(t); return d.Driver, d.DSN },
		sqlinbox.SQLite: func(t *testing.T) (string, string) {
			return "sqlite", "file:" + filepath.Join(t.TempDir(), "db") +
				"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
		},
	} {
		t.Run(dialect.String(), func(t *testing.T) {
			t.Parallel()
			driver, dsn := open(t)
			test(t, database{dialect, driver, dsn})
		})
	}
}

// open connects until the test ends, with a table for effects.
func (d database) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE payments (id VARCHAR(600))`); err != nil {
		t.Fatal(err)
	}
	return db
}

// inbox is a migrated inbox; change may be nil.
func (d database) inbox(t testing.TB, db *sql.DB, change func(*sqlinbox.Config)) *sqlinbox.Inbox {
	t.Helper()
	config := sqlinbox.Config{DB: db, Dialect: d.dialect, Consumer: "payments"}
	if change != nil {
		change(&config)
	}
	i, err := sqlinbox.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return i
}

// pay is an effect.
func (d database) pay(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
	parameter := "?"
	if d.dialect == sqlinbox.PostgreSQL {
		parameter = "$1"
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO payments (id) VALUES (`+parameter+`)`, m.ID)
	return err
}

func payments(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM payments`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func order(id string) *consumer.Message { return &consumer.Message{ID: id, Producer: "orders"} }

func TestAMessageHasOneEffect(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		h := d.inbox(t, db, nil).Handler(d.pay)
		if err := h.Handle(t.Context(), order("1")); err != nil {
			t.Fatal(err)
		}
		if err := h.Handle(t.Context(), order("1")); !errors.Is(err, consumer.ErrDuplicate) {
			t.Errorf("the copy: %v", err)
		}
		if n := payments(t, db); n != 1 {
			t.Errorf("%d effects", n)
		}
		other := d.inbox(t, db, func(c *sqlinbox.Config) { c.Consumer = "shipping" }).Handler(d.pay)
		if err := other.Handle(t.Context(), order("1")); err != nil {
			t.Errorf("another consumer: %v", err)
		}
	})
}

func TestSimilarIDsStaySeparate(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		nothing := func(context.Context, *sql.Tx, *consumer.Message) error { return nil }
		h := d.inbox(t, db, nil).Handler(nothing)
		long := string(make([]byte, 254))
		for _, id := range []string{"a", "A", "a ", "ä", "a\x00", "\xff\xfe", "{a}", long + "a", long + "b"} {
			if err := h.Handle(t.Context(), order(id)); err != nil {
				t.Errorf("%q: %v", id, err)
			}
		}
		for _, id := range []string{"", long + long} {
			var reject *consumer.RejectError
			if err := h.Handle(t.Context(), order(id)); !errors.As(err, &reject) || !errors.Is(err, sqlinbox.ErrNoID) {
				t.Errorf("an id of %d bytes: %v", len(id), err)
			}
		}
	})
}

func TestFailedEffectLeavesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		fail := errors.New("no money")
		var outcome func() error
		h := d.inbox(t, db, nil).Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
			return errors.Join(d.pay(ctx, tx, m), outcome())
		})
		outcome = func() error { return fail }
		if err := h.Handle(t.Context(), order("1")); !errors.Is(err, fail) {
			t.Error(err)
		}
		outcome = func() error { panic(fail) }
		err := consumer.Chain(h, consumer.Recover()).Handle(t.Context(), order("1"))
		if !errors.Is(err, fail) || payments(t, db) != 0 {
			t.Errorf("%v, and %d effects", err, payments(t, db))
		}
		outcome = func() error { return nil }
		if err := h.Handle(t.Context(), order("1")); err != nil || payments(t, db) != 1 {
			t.Errorf("%v, and %d effects", err, payments(t, db))
		}
	})
}

// Each message comes eight times at once.
func TestConcurrentCopiesHaveOneEffect(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		h := d.inbox(t, db, nil).Handler(d.pay)
		const messages, copies = 100, 8
		var effects, duplicates atomic.Int32
		for n := range messages {
			var all sync.WaitGroup
			for range copies {
				all.Go(func() {
					switch err := h.Handle(t.Context(), order(strconv.Itoa(n))); {
					case err == nil:
						effects.Add(1)
					case errors.Is(err, consumer.ErrDuplicate):
						duplicates.Add(1)
					default:
						t.Log(err) // would be redelivered
					}
				})
			}
			all.Wait()
		}
		if payments(t, db) != messages || effects.Load() != messages || duplicates.Load() == 0 {
			t.Errorf("%d messages had %d effects, %d were said, with %d duplicates",
				messages, payments(t, db), effects.Load(), duplicates.Load())
		}
	})
}

// A copy that arrives during the first transaction waits for the end of this transaction.
func TestACopyWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		inbox := d.inbox(t, db, nil)
		for _, row := range []struct {
			id     string
			commit bool
			want   error
		}{{"commits", true, consumer.ErrDuplicate}, {"fails", false, nil}} {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := inbox.Take(t.Context(), tx, order(row.id)); err != nil {
				t.Fatal(err)
			}
			second := make(chan error, 1)
			go func() { second <- inbox.Handler(d.pay).Handle(t.Context(), order(row.id)) }()
			select {
			case err := <-second:
				t.Fatalf("the copy did not wait: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			end := tx.Rollback
			if row.commit {
				end = tx.Commit
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if err := <-second; !errors.Is(err, row.want) {
				t.Errorf("the first %s, the second: %v", row.id, err)
			}
		}
	})
}

// An inbox without calls of Purge loses its old rows after the commits of Handler.
func TestHandlerRemovesOldRows(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		nothing := func(context.Context, *sql.Tx, *consumer.Message) error { return nil }
		for _, step := range []struct {
			id      string
			noPurge bool
			left    int
		}{{"1", true, 1}, {"2", true, 2}, {"3", false, 1}} {
			inbox := d.inbox(t, db, func(c *sqlinbox.Config) { c.NoPurge = step.noPurge })
			if err := inbox.Handler(nothing).Handle(t.Context(), order(step.id)); err != nil {
				t.Fatal(err)
			}
			var left int
			if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM msghandler_inbox").Scan(&left); err != nil {
				t.Fatal(err)
			}
			if left != step.left {
				t.Errorf("after message %s the inbox has %d rows, want %d", step.id, left, step.left)
			}
			if _, err := db.ExecContext(t.Context(), "UPDATE msghandler_inbox SET created_at = 0"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestPurgeRemovesOldRows(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		inbox := d.inbox(t, db, nil)
		nothing := func(context.Context, *sql.Tx, *consumer.Message) error { return nil }
		handle := func(id string) error { return inbox.Handler(nothing).Handle(t.Context(), order(id)) }
		for _, id := range []string{"old", "young"} {
			if err := handle(id); err != nil {
				t.Fatal(err)
			}
		}
		key := map[sqlinbox.Dialect]string{sqlinbox.PostgreSQL: "$1"}[d.dialect]
		if key == "" {
			key = "?"
		}
		_, err := db.ExecContext(t.Context(), `UPDATE msghandler_inbox SET created_at = created_at - 2678400000
			WHERE message = `+key, []byte("orders/old"))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := inbox.Purge(t.Context()); n != 1 || err != nil {
			t.Errorf("purged %d: %v", n, err)
		}
		if err := handle("young"); !errors.Is(err, consumer.ErrDuplicate) {
			t.Errorf("the young one: %v", err)
		}
		if err := handle("old"); err != nil {
			t.Errorf("the old one: %v", err)
		}
	})
}

func TestDDLCreatesMigratesTable(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: d.dialect, Consumer: "payments", Table: "my_inbox"})
		if err != nil {
			t.Fatal(err)
		}
		statements, err := inbox.DDL()
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range statements {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		if err := inbox.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := inbox.Handler(d.pay).Handle(t.Context(), order("1")); err != nil {
			t.Error(err)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	db := database{sqlinbox.SQLite, "sqlite", "file::memory:"}.open(t)
	good := sqlinbox.Config{DB: db, Dialect: sqlinbox.SQLite, Consumer: "payments"}
	for name, change := range map[string]func(*sqlinbox.Config){
		"DB":        func(c *sqlinbox.Config) { c.DB = nil },
		"Dialect":   func(c *sqlinbox.Config) { c.Dialect = 0 },
		"Consumer":  func(c *sqlinbox.Config) { c.Consumer = "" },
		"Table":     func(c *sqlinbox.Config) { c.Table = "a; DROP" },
		"Retention": func(c *sqlinbox.Config) { c.Retention = time.Millisecond },
	} {
		config := good
		change(&config)
		if _, err := sqlinbox.New(config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
