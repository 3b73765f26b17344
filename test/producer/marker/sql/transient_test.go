package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// hasty is the same database with the shortest possible lock waits: 50 ms, and 1 s in MariaDB.
func (d database) hasty() database {
	switch d.dialect {
	case sqlmarker.PostgreSQL:
		d.dsn += "&options=" + "-c%20lock_timeout%3D50"
	case sqlmarker.MySQL:
		d.dsn += "?innodb_lock_wait_timeout=1"
	default:
		d.dsn = strings.Replace(d.dsn, "busy_timeout(20000)", "busy_timeout(50)", 1)
	}
	return d
}

// lockMarkers keeps every other connection from writing a marker until unlock is called. They can still be read.
func (d database) lockMarkers(t *testing.T, db *sql.DB) (unlock func()) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := func(statement string) {
		if _, err := conn.ExecContext(context.Background(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	switch d.dialect {
	case sqlmarker.PostgreSQL:
		run("BEGIN")
		run("LOCK TABLE msghandler_markers IN SHARE MODE")
	case sqlmarker.MySQL:
		run("BEGIN")
		run("SELECT COUNT(*) FROM msghandler_markers FOR UPDATE") // locks the gaps too
	default:
		run("BEGIN IMMEDIATE")
	}
	unlock = sync.OnceFunc(func() {
		run("ROLLBACK")
		_ = conn.Close()
	})
	t.Cleanup(unlock)
	return unlock
}

// sentAgain demands that the id 1001 is usable: the business runs, and the message is submitted.
func (d database) sentAgain(t *testing.T, s *sqlmarker.Store, p *producer.Producer, a *accepting) {
	t.Helper()
	const id = "1001"
	if err := s.Send(t.Context(), p, message(id), insertOrder(d.dialect, id)); err != nil {
		t.Errorf("the same id once more: %v", err)
	}
	if err := p.Close(t.Context()); err != nil { // waits for submits in the background
		t.Fatal(err)
	}
	if len(a.rolledBack) != 0 || !slices.Contains(a.submitted, id) {
		t.Errorf("submitted %q, rolled back %q", a.submitted, a.rolledBack)
	}
	if v := final(t, s, id)[id]; v != marker.Committed {
		t.Errorf("its marker says %v", v)
	}
}

func TestLockedDatabaseLeavesTheIDUsable(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		plain := d.open(t)
		s := d.store(t, d.hasty().open(t), func(c *sqlmarker.Config) { c.BeginTimeout = 300 * time.Millisecond })
		orders(t, plain)
		p, a := sender(t, s)
		unlock := d.lockMarkers(t, plain)
		for _, id := range []string{"1001", "asked"} {
			err := s.Send(t.Context(), p, message(id), insertOrder(d.dialect, id))
			if !errors.Is(err, producer.ErrSendAgain) || !errors.Is(err, producer.ErrNotCommitted) {
				t.Errorf("while the database is locked: %v", err)
			}
		}
		unlock()
		// Where the coordinator has asked for the last time in between, the id is rolled back, and stays so.
		if v := final(t, s, "asked")["asked"]; v != marker.RolledBack {
			t.Errorf("the last question is answered with %v", v)
		}
		err := s.Send(t.Context(), p, message("asked"), insertOrder(d.dialect, "asked"))
		if !errors.Is(err, producer.ErrRolledBack) {
			t.Errorf("after the last question: %v", err)
		}
		d.sentAgain(t, s, p, a)
		if ids := orderIDs(t, plain); len(ids) != 1 || !ids["1001"] {
			t.Errorf("committed %v", ids)
		}
	})
}

func TestBeginWaitsForALock(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		plain := d.open(t)
		db, l := d.hasty().openLossy(t)
		s := d.store(t, db, nil)
		orders(t, plain)
		unlock := d.lockMarkers(t, plain)
		var begun atomic.Int32
		onSecond := func() {
			if begun.Add(1) == 2 {
				unlock()
			}
		}
		l.onBegin.Store(&onSecond)
		if err := s.InTx(message("1001"), insertOrder(d.dialect, "1001"))(t.Context()); err != nil || begun.Load() < 2 {
			t.Errorf("%v, after %d attempts", err, begun.Load())
		}
		// The caller's context ends the attempts.
		d.lockMarkers(t, plain)
		ctx, cancel := context.WithCancel(t.Context())
		begun.Store(0)
		onSecond = func() {
			if begun.Add(1) == 2 {
				cancel()
			}
		}
		err := s.InTx(message("1002"), insertOrder(d.dialect, "1002"))(ctx)
		if !errors.Is(err, producer.ErrSendAgain) || begun.Load() != 2 {
			t.Errorf("%v, after %d attempts", err, begun.Load())
		}
	})
}

// waiting waits until so many of the database's connections wait for locks, and returns them as the database names
// them.
func (d database) waiting(t *testing.T, db *sql.DB, n int) (connections []int64) {
	t.Helper()
	servers.Eventually(t, 30*time.Second, "connections wait for locks", func() bool {
		if d.dialect == sqlmarker.MySQL {
			connections = lockWaits(t, db)
		} else {
			connections = numbers(t, db, `SELECT pid FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`)
		}
		return len(connections) == n
	})
	return connections
}

var lockWait = regexp.MustCompile(`\nLOCK WAIT [^\n]*\nMariaDB thread id (\d+),`)

// lockWaits reads the monitor of InnoDB: frequent reads of the cached table innodb_trx see no refresh.
func lockWaits(t *testing.T, db *sql.DB) (connections []int64) {
	t.Helper()
	var kind, name, text string
	if err := db.QueryRowContext(t.Context(), "SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &text); err != nil {
		t.Fatal(err)
	}
	own := numbers(t, db, "SELECT id FROM information_schema.processlist WHERE db = DATABASE()")
	for _, match := range lockWait.FindAllStringSubmatch(text, -1) {
		if id, err := strconv.ParseInt(match[1], 10, 64); err == nil && slices.Contains(own, id) {
			connections = append(connections, id)
		}
	}
	return connections
}

func numbers(t *testing.T, db *sql.DB, query string) (all []int64) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// onServers runs a test on the databases that are servers.
func onServers(t *testing.T, test func(t *testing.T, d database)) {
	onEach(t, func(t *testing.T, d database) {
		if d.dialect != sqlmarker.SQLite {
			test(t, d)
		}
	})
}

func TestConnectionKilledAtMarkerIsReplaced(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		orders(t, db)
		p, a := sender(t, s)
		held := begin(t, db)
		if err := s.Mark(t.Context(), held, "1001"); err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() { sent <- s.Send(t.Context(), p, message("1001"), insertOrder(d.dialect, "1001")) }()
		kill := "SELECT pg_terminate_backend(%d)"
		if d.dialect == sqlmarker.MySQL {
			kill = "KILL %d"
		}
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf(kill, d.waiting(t, db, 1)[0])); err != nil {
			t.Fatal(err)
		}
		if err := held.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := <-sent; err != nil {
			t.Errorf("a connection was killed before the business began: %v", err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(a.rolledBack) != 0 || !slices.Equal(a.submitted, []string{"1001"}) || !orderIDs(t, db)["1001"] {
			t.Errorf("submitted %q, rolled back %q, committed %v", a.submitted, a.rolledBack, orderIDs(t, db))
		}
	})
}

// Three transactions want one marker. When the first rolls back, MariaDB lets the two others wait for each other and
// ends one of them; PostgreSQL ends a transaction whose snapshot is older than the marker. The ended transaction
// begins anew, and finds the marker.
func TestDeadlockAtMarkerIsRetried(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, func(c *sqlmarker.Config) {
			c.TxOptions = &sql.TxOptions{Isolation: sql.LevelRepeatableRead}
		})
		orders(t, db)
		held := begin(t, db)
		if err := s.Mark(t.Context(), held, "1001"); err != nil {
			t.Fatal(err)
		}
		results := make(chan error, 2)
		for range 2 {
			go func() { results <- s.InTx(message("1001"), insertOrder(d.dialect, "1001"))(t.Context()) }()
		}
		d.waiting(t, db, 2)
		if err := held.Rollback(); err != nil {
			t.Fatal(err)
		}
		first, second := <-results, <-results
		if first != nil {
			first, second = second, first
		}
		if first != nil || !errors.Is(second, producer.ErrAlreadyCommitted) {
			t.Errorf("the two ended with %v and %v", first, second)
		}
	})
}

// The last question plants its tombstone while the transaction waits for the row, so the tombstone is not in its
// snapshot.
func TestTombstoneBehindSnapshotIsFound(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, func(c *sqlmarker.Config) {
			c.TxOptions = &sql.TxOptions{Isolation: sql.LevelRepeatableRead}
		})
		orders(t, db)
		tombstone := begin(t, db)
		_, err := tombstone.ExecContext(t.Context(), `INSERT INTO msghandler_markers
			(producer, id, verdict, created_at, cleaned_at) VALUES ('orders', '1001', 3, 0, 0)`)
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() { sent <- s.InTx(message("1001"), insertOrder(d.dialect, "1001"))(t.Context()) }()
		d.waiting(t, db, 1)
		if err := tombstone.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-sent; !errors.Is(err, producer.ErrRolledBack) || errors.Is(err, producer.ErrSendAgain) {
			t.Errorf("got %v", err)
		}
	})
}

// victim makes the caller's own transaction the victim of a deadlock at its marker, and returns the error of Mark.
// The transaction wrote before its marker, against the contract.
func (d database) victim(t *testing.T, db *sql.DB, s *sqlmarker.Store, id string) error {
	t.Helper()
	tx, other := begin(t, db), begin(t, db)
	defer func() { _ = tx.Rollback() }()
	defer func() { _ = other.Rollback() }()
	insert := func(tx *sql.Tx, id string) error { return insertOrder(d.dialect, id)(t.Context(), tx) }
	if d.dialect == sqlmarker.SQLite { // its snapshot is too old to write
		var n int
		if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(insert(other, "other"), other.Commit()); err != nil {
			t.Fatal(err)
		}
		return s.Mark(t.Context(), tx, id)
	}
	if d.dialect == sqlmarker.PostgreSQL { // who looks first is ended
		if _, err := other.ExecContext(t.Context(), "SET LOCAL deadlock_timeout = '1min'"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 { // MariaDB ends the transaction that has written less
		if err := insert(other, fmt.Sprint("other-", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(insert(tx, "wanted"), s.Mark(t.Context(), other, id)); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() { waits <- insert(other, "wanted") }()
	d.waiting(t, db, 1)
	err := s.Mark(t.Context(), tx, id)
	_ = tx.Rollback()
	if failed := <-waits; failed != nil {
		t.Fatalf("the other transaction was ended: %v", failed)
	}
	return err
}

func TestDeadlockInMarkLeavesIDUsable(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		orders(t, db)
		p, a := sender(t, s)
		err := p.Send(t.Context(), message("1001"), func(context.Context) error { return d.victim(t, db, s, "1001") })
		if !errors.Is(err, producer.ErrSendAgain) {
			t.Errorf("got %v", err)
		}
		d.sentAgain(t, s, p, a)
	})
}

// Sending again cannot help where the database refuses the marker for good, so the message does not stay PENDING.
func TestMarkSeparatesPermanentFromTransientErrors(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		orders(t, db)
		refused := d.store(t, db, func(c *sqlmarker.Config) { c.TxOptions = &sql.TxOptions{ReadOnly: true} })
		if d.dialect == sqlmarker.SQLite { // its driver knows no read-only transactions
			d.dsn += "&_pragma=query_only(1)"
			refused = sqliteReadOnly(t, d)
		}
		p, a := sender(t, s)
		err := refused.Send(t.Context(), p, message("1001"), insertOrder(d.dialect, "1001"))
		if errors.Is(err, producer.ErrSendAgain) || !errors.Is(err, producer.ErrNotCommitted) {
			t.Errorf("in a read-only transaction: %v", err)
		}
		if !slices.Equal(a.rolledBack, []string{"1001"}) || len(orderIDs(t, db)) != 0 {
			t.Errorf("rolled back %q, orders %v", a.rolledBack, orderIDs(t, db))
		}
		if _, err := db.ExecContext(t.Context(), "DROP TABLE msghandler_markers"); err != nil {
			t.Fatal(err)
		}
		err = s.InTx(message("1002"), insertOrder(d.dialect, "1002"))(t.Context())
		if err == nil || errors.Is(err, producer.ErrSendAgain) {
			t.Errorf("without the table: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		err = s.InTx(message("1003"), insertOrder(d.dialect, "1003"))(ended)
		if !errors.Is(err, producer.ErrSendAgain) || !errors.Is(err, producer.ErrNotCommitted) {
			t.Errorf("with an ended context: %v", err)
		}
	})
}

// sqliteReadOnly is a store on read-only connections; the table exists already.
func sqliteReadOnly(t *testing.T, d database) *sqlmarker.Store {
	t.Helper()
	s, err := sqlmarker.New(sqlmarker.Config{DB: d.open(t), Dialect: d.dialect, Producer: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A serialization failure at COMMIT is certain. In SQLite an open reader causes the failure.
func TestAbortedCommitLeavesTheIDUsable(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		if d.dialect == sqlmarker.MySQL {
			return // MariaDB locks the rows that a serializable transaction reads, and aborts none at its COMMIT
		}
		if d.dialect == sqlmarker.SQLite {
			d.dsn = strings.Replace(d.dsn, "journal_mode(WAL)", "journal_mode(DELETE)", 1)
		}
		db := d.hasty().open(t)
		s := d.store(t, db, func(c *sqlmarker.Config) {
			c.TxOptions = &sql.TxOptions{Isolation: sql.LevelSerializable}
		})
		orders(t, db)
		if err := s.InTx(message("0"), insertOrder(d.dialect, "0"))(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, a := sender(t, s)
		var done func()
		err := s.Send(t.Context(), p, message("1001"), func(ctx context.Context, tx *sql.Tx) error {
			if err := insertOrder(d.dialect, "1001")(ctx, tx); err != nil {
				return err
			}
			if d.dialect == sqlmarker.SQLite {
				done = d.reader(t, db)
			} else {
				done = d.skew(t, db, tx)
			}
			return nil
		})
		if !errors.Is(err, producer.ErrSendAgain) || !errors.Is(err, producer.ErrNotCommitted) {
			t.Errorf("got %v", err)
		}
		done()
		d.sentAgain(t, s, p, a)
	})
}

// reader reads until done is called.
func (d database) reader(t *testing.T, db *sql.DB) (done func()) {
	t.Helper()
	tx := begin(t, db)
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}

// skew lets a transaction and another read the rows that the other writes, and commits the other.
func (d database) skew(t *testing.T, db *sql.DB, tx *sql.Tx) (done func()) {
	t.Helper()
	other, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		t.Fatal(err)
	}
	var n int
	for _, reads := range []*sql.Tx{tx, other} {
		if err := reads.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	if err := insertOrder(d.dialect, "other")(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := other.Commit(); err != nil {
		t.Fatal(err)
	}
	return func() {}
}
