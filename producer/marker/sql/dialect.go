package sql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Dialect is the database that a store speaks to.
type Dialect uint8

// The dialects.
const (
	// PostgreSQL, through a driver whose errors tell their SQLState, as pgx and lib/pq do.
	PostgreSQL Dialect = iota + 1
	// MySQL and MariaDB, with InnoDB, through go-sql-driver/mysql.
	MySQL
	// SQLite, through modernc.org/sqlite or another.
	SQLite
)

// String gives the dialect's name.
func (d Dialect) String() string {
	if t := dialects[d]; t != nil {
		return t.name
	}
	return fmt.Sprintf("dialect(%d)", uint8(d))
}

// dialect is what differs between the databases.
type dialect struct {
	name string
	// dollars: parameters are $1, $2, not question marks.
	dollars bool
	// now is the database's clock in milliseconds.
	now string
	// keepOld ends an INSERT that leaves rows alone which are there already. It waits for a transaction that has
	// written one of them.
	keepOld string
	// duplicate: an INSERT of a marker says by its error that there is one already, not by counting no row.
	duplicate func(err error) bool
	// latest ends a SELECT that is to see what others have committed since the transaction began.
	latest string
	// busy says that a statement gave up waiting for others, or for one of a circle that wait for each other.
	busy func(err error) bool
	// oneWriter: a write waits for every other write, whatever it is about.
	oneWriter bool
	// level is what the store's own transactions and looks ask for; the zero one is the driver's.
	level sql.IsolationLevel
	// lookInTx: a look takes a transaction, so that no session's setting lets it see what is not committed.
	lookInTx bool
	// patience reads and sets how long a connection waits for a lock.
	readPatience string
	setPatience  func(d time.Duration) string
	// restored: the setting is the session's, so it is put back. Otherwise it ends with the transaction.
	restored bool
	// skipLocked ends the SELECT of a claim.
	skipLocked string
	// slice names the rows of a purge's slice.
	slice string
	// migration: statements around one, so that one runs at a time.
	migrationBegin, migrationEnd, migrationAbort string
}

var dialects = map[Dialect]*dialect{
	PostgreSQL: {
		name: "postgresql", dollars: true, level: sql.LevelReadCommitted,
		now:         "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::BIGINT",
		keepOld:     " ON CONFLICT DO NOTHING",
		busy:        postgreSQLBusy,
		setPatience: func(d time.Duration) string { return fmt.Sprintf("SET LOCAL lock_timeout = %d", d.Milliseconds()) },
		skipLocked:  " FOR UPDATE SKIP LOCKED",
		slice:       "ctid IN (SELECT ctid FROM {table} WHERE {where} LIMIT {n})",
		// Any number does that nobody else takes.
		migrationBegin: "BEGIN; SELECT pg_advisory_xact_lock(7263871209)", migrationEnd: "COMMIT", migrationAbort: "ROLLBACK",
	},
	MySQL: {
		name: "mysql", level: sql.LevelReadCommitted, lookInTx: true,
		now:          "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
		keepOld:      " ON DUPLICATE KEY UPDATE verdict = verdict",
		duplicate:    mySQLDuplicate,
		latest:       " LOCK IN SHARE MODE",
		busy:         mySQLBusy,
		readPatience: "SELECT @@SESSION.innodb_lock_wait_timeout",
		setPatience: func(d time.Duration) string {
			return fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", max(1, int64(d.Seconds())))
		},
		restored:       true,
		skipLocked:     " FOR UPDATE SKIP LOCKED",
		slice:          "{where} LIMIT {n}",
		migrationBegin: "DO GET_LOCK('{table}', 60)", migrationEnd: "DO RELEASE_LOCK('{table}')",
		migrationAbort: "DO RELEASE_LOCK('{table}')",
	},
	SQLite: {
		name: "sqlite", oneWriter: true,
		now:            "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
		keepOld:        " ON CONFLICT DO NOTHING",
		busy:           sqliteBusy,
		readPatience:   "PRAGMA busy_timeout",
		setPatience:    func(d time.Duration) string { return fmt.Sprintf("PRAGMA busy_timeout = %d", d.Milliseconds()) },
		restored:       true,
		slice:          "rowid IN (SELECT rowid FROM {table} WHERE {where} LIMIT {n})",
		migrationBegin: "BEGIN IMMEDIATE", migrationEnd: "COMMIT", migrationAbort: "ROLLBACK",
	},
}

// query completes a statement: the table's name, the clock, and parameters as the dialect has them.
func (s *Store) query(text string) string {
	text = s.names.Replace(text)
	if !s.dialect.dollars {
		return text
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(text, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		text = after
	}
}

// execer is a connection or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// write runs the store's own statements in a transaction that waits for locks no longer than LockTimeout.
func (s *Store) write(ctx context.Context, work func(tx execer) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	restore, err := s.impatient(ctx, conn)
	if err != nil {
		return err
	}
	defer restore()
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: s.dialect.level})
	if err != nil {
		return err
	}
	if !s.dialect.restored {
		_, err = tx.ExecContext(ctx, s.dialect.setPatience(s.config.LockTimeout))
	}
	if err == nil {
		err = work(tx)
	}
	if err != nil {
		_ = tx.Rollback() // the connection is given up where it fails
		return err
	}
	return tx.Commit()
}

// impatient makes a session wait for locks no longer than LockTimeout, where a transaction alone cannot, and returns
// what puts its own setting back.
func (s *Store) impatient(ctx context.Context, conn *sql.Conn) (restore func(), err error) {
	if !s.dialect.restored {
		return func() {}, nil
	}
	var usual int64
	if err := conn.QueryRowContext(ctx, s.dialect.readPatience).Scan(&usual); err != nil {
		return nil, err
	}
	unit := time.Second
	if s.dialect.oneWriter {
		unit = time.Millisecond
	}
	if _, err := conn.ExecContext(ctx, s.dialect.setPatience(s.config.LockTimeout)); err != nil {
		return nil, err
	}
	return func() {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), s.dialect.setPatience(time.Duration(usual)*unit))
		if err != nil {
			// A session of unknown settings is not given back to the pool.
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}, nil
}
