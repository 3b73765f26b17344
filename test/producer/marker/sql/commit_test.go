package sql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

var errLost = errors.New("the answer to COMMIT was lost")

// lossy is a database whose next commit fails: before or after taking effect.
type lossy struct {
	driver.Connector
	lose atomic.Pointer[string]
	// onBegin is called before a writing transaction begins.
	onBegin atomic.Pointer[func()]
	// onQuery is called with each query.
	onQuery atomic.Pointer[func(query string)]
	// onExec is called before each statement, with the connection that runs the statement.
	onExec atomic.Pointer[func(conn driver.ExecerContext, statement string)]
}

const before, after = "before", "after"

// openLossy opens the database through a driver that loses answers to COMMIT.
func (d database) openLossy(t *testing.T) (*sql.DB, *lossy) {
	t.Helper()
	plain := d.open(t)
	connector := driver.Connector(dsnConnector{plain.Driver(), d.dsn})
	if c, ok := plain.Driver().(driver.DriverContext); ok {
		var err error
		if connector, err = c.OpenConnector(d.dsn); err != nil {
			t.Fatal(err)
		}
	}
	l := &lossy{Connector: connector}
	db := sql.OpenDB(l)
	t.Cleanup(func() { _ = db.Close() })
	return db, l
}

type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

func (l *lossy) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := l.Connector.Connect(ctx)
	return &lossyConn{Conn: c, lossy: l}, err
}

// lossyConn implements the optional interfaces that the stores need.
type lossyConn struct {
	driver.Conn
	lossy *lossy
}

func (c *lossyConn) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	conn := c.Conn.(driver.ExecerContext)
	if call := c.lossy.onExec.Load(); call != nil {
		(*call)(conn, q)
	}
	return conn.ExecContext(ctx, q, args)
}

func (c *lossyConn) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	if call := c.lossy.onQuery.Load(); call != nil {
		(*call)(q)
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, q, args)
}

func (c *lossyConn) PrepareContext(ctx context.Context, q string) (driver.Stmt, error) {
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, q)
}

func (c *lossyConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *lossyConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	if call := c.lossy.onBegin.Load(); call != nil && !options.ReadOnly {
		(*call)()
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
	return &lossyTx{Tx: tx, lossy: c.lossy}, err
}

type lossyTx struct {
	driver.Tx
	lossy *lossy
}

func (tx *lossyTx) Commit() error {
	when := tx.lossy.lose.Swap(nil)
	if when == nil {
		return tx.Tx.Commit()
	}
	if *when == after {
		return errors.Join(tx.Tx.Commit(), errLost)
	}
	return errors.Join(tx.Tx.Rollback(), errLost)
}

func TestLostCommitAnswerIsFound(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db, l := d.openLossy(t)
		s := d.store(t, db, nil)
		orders(t, db)
		business := func(when, id string) error {
			l.lose.Store(&when)
			return s.InTx(message(id), insertOrder(d.dialect, id))(t.Context())
		}
		for round := range *rounds {
			there, gone := fmt.Sprint("there-", round), fmt.Sprint("gone-", round)
			if err := business(after, there); err != nil {
				t.Errorf("committed, and got %v", err)
			}
			if err := business(before, gone); !errors.Is(err, producer.ErrNotCommitted) || !errors.Is(err, errLost) {
				t.Errorf("not committed, and got %v", err)
			}
			got := final(t, s, there, gone)
			if got[there] != marker.Committed || got[gone] != marker.RolledBack {
				t.Errorf("CONTRADICTION: %v", got)
			}
		}
		for id := range orderIDs(t, db) {
			if !strings.HasPrefix(id, "there-") {
				t.Fatalf("the test is wrong: %s is committed", id)
			}
		}
		t.Logf("%d commits with a lost answer, and %d without a commit: no contradiction", *rounds, *rounds)
	})
}

var loopback = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// The connection breaks at COMMIT: before the COMMIT reaches the server, or with the answer on its way. The server
// may notice the break late; until then the tombstone waits for the transaction.
func TestBrokenCommitIsFoundAtDatabase(t *testing.T) {
	t.Parallel()
	for dialect, open := range map[sqlmarker.Dialect]func(testing.TB) *servers.Database{
		sqlmarker.PostgreSQL: servers.PostgreSQL, sqlmarker.MySQL: servers.MariaDB,
	} {
		t.Run(dialect.String(), func(t *testing.T) {
			t.Parallel()
			there := open(t)
			address := loopback.FindString(there.DSN)
			proxy := wire.SQL(t, address)
			d := database{dialect, there.Driver, strings.Replace(there.DSN, address, proxy.Addr, 1)}
			db := d.open(t)
			s := d.store(t, db, func(c *sqlmarker.Config) { c.LockTimeout = 4 * time.Second })
			orders(t, db)
			for round := range *rounds {
				for at, want := range map[wire.Phase]marker.Verdict{
					wire.Request: marker.RolledBack, wire.Reply: marker.Committed,
				} {
					id := fmt.Sprint(at, "-", round)
					cutNextCommit(proxy, at)
					err := s.InTx(message(id), insertOrder(dialect, id))(t.Context())
					undone := errors.Is(err, producer.ErrNotCommitted)
					if err != nil && !undone || undone != (want == marker.RolledBack) {
						t.Errorf("cut off %v COMMIT was done: %v", at, err)
					}
					if got := final(t, s, id)[id]; got != want || orderIDs(t, db)[id] != (want == marker.Committed) {
						t.Errorf("CONTRADICTION: cut off %v COMMIT was done, and got %v", at, got)
					}
				}
			}
			t.Logf("%d connections cut off before COMMIT, and %d after COMMIT: no contradiction", *rounds, *rounds)
		})
	}
}

// cutNextCommit cuts the connection of the next COMMIT, and of no other.
func cutNextCommit(proxy *wire.Proxy, at wire.Phase) {
	var armed atomic.Bool
	armed.Store(true)
	proxy.On(func(e wire.Event) wire.Act {
		if e.Name == "commit" && e.Phase == at && armed.CompareAndSwap(true, false) {
			return wire.Cut
		}
		return wire.Pass
	})
}

func TestUndecidableCommitIsUnknown(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, shortLocks)
		// The transaction still runs, as on a server that has not noticed the end of its client.
		tx := begin(t, db)
		if err := s.Mark(t.Context(), tx, "1001"); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context(), "1001", errLost); !errors.Is(err, producer.ErrOutcomeUnknown) {
			t.Errorf("the database gives no answer, and the caller gets %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context(), "1001", errLost); err != nil {
			t.Errorf("the row is there by now: %v", err)
		}
	})
}

func TestUnreachableDatabaseIsAnError(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		_ = db.Close()
		for _, last := range []bool{false, true} {
			if found, err := s.Lookup(t.Context(), []string{"1"}, last); err == nil {
				t.Errorf("final=%v: %v, though nothing could be asked", last, found)
			}
		}
		if err := s.Delete(t.Context(), []string{"1"}); err == nil {
			t.Error("Delete says nothing")
		}
		err := s.InTx(message("1"), insertOrder(d.dialect, "1"))(t.Context())
		if !errors.Is(err, producer.ErrNotCommitted) {
			t.Errorf("a transaction without a beginning: %v", err)
		}
	})
}
