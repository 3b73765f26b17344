package sqldb

import (
	"database/sql"
	"fmt"
	"time"
)

// Dialect is the database that is spoken to.
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
	if t := traits[d]; t != nil {
		return t.Name
	}
	return fmt.Sprintf("dialect(%d)", uint8(d))
}

// Traits are what differs between the databases; nil for a dialect that does not exist.
func (d Dialect) Traits() *Traits { return traits[d] }

// Traits is what differs between the databases.
type Traits struct {
	Name string
	// Dollars: parameters are $1, $2, not question marks.
	Dollars bool
	// Now is the database's clock in milliseconds, the same for the whole statement: an index cannot find what is compared
	// with a time that goes on meanwhile.
	Now string
	// KeepOld ends an INSERT that leaves rows alone which are there already. It waits for a transaction that has
	// written one of them. Every table has a column created_at for it.
	KeepOld string
	// Duplicate: an INSERT says by its error that there is such a row already, not by counting no row.
	Duplicate func(err error) bool
	// Latest ends a SELECT that is to see what others have committed since the transaction began.
	Latest string
	// Busy says that a statement gave up waiting for others, or for one of a circle that wait for each other.
	Busy func(err error) bool
	// Unreachable says that the server ended the connection, or gave none.
	Unreachable func(err error) bool
	// Aborted says, of the error of a COMMIT, that the database has rolled the transaction back, for a reason that passes.
	// Any other error of a COMMIT leaves open what became of it.
	Aborted func(err error) bool
	// OneWriter: a write waits for every other write, whatever it is about.
	OneWriter bool
	// Level is what a table's own transactions and looks ask for; the zero one is the driver's.
	Level sql.IsolationLevel
	// LookInTx: a look takes a transaction, so that no session's setting lets it see what is not committed.
	LookInTx bool
	// ReadPatience and SetPatience read and set how long a connection waits for a lock.
	ReadPatience string
	SetPatience  func(d time.Duration) string
	// Restored: the setting is the session's, so it is put back. Otherwise it ends with the transaction.
	Restored bool
	// SkipLocked ends the SELECT of a claim.
	SkipLocked string
	// Slice names the rows of a purge's slice.
	Slice string
	// migration: statements around one, so that one runs at a time.
	migrationBegin, migrationEnd, migrationAbort string
}

var traits = map[Dialect]*Traits{
	PostgreSQL: {
		Name: "postgresql", Dollars: true, Level: sql.LevelReadCommitted,
		Now:         "(EXTRACT(EPOCH FROM statement_timestamp()) * 1000)::BIGINT",
		KeepOld:     " ON CONFLICT DO NOTHING",
		Busy:        postgreSQLBusy,
		Unreachable: postgreSQLUnreachable,
		Aborted:     postgreSQLAborted,
		SetPatience: func(d time.Duration) string { return fmt.Sprintf("SET LOCAL lock_timeout = %d", d.Milliseconds()) },
		SkipLocked:  " FOR UPDATE SKIP LOCKED",
		Slice:       "ctid IN (SELECT ctid FROM {table} WHERE {where} LIMIT {n})",
		// Any number does that nobody else takes.
		migrationBegin: "BEGIN; SELECT pg_advisory_xact_lock(7263871209)", migrationEnd: "COMMIT", migrationAbort: "ROLLBACK",
	},
	MySQL: {
		Name: "mysql", Level: sql.LevelReadCommitted, LookInTx: true,
		// Not from NOW(), which is local time: the hour that comes twice in autumn would be the same twice.
		Now:          "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)",
		KeepOld:      " ON DUPLICATE KEY UPDATE created_at = created_at",
		Duplicate:    mySQLDuplicate,
		Latest:       " LOCK IN SHARE MODE",
		Busy:         mySQLBusy,
		Unreachable:  mySQLUnreachable,
		Aborted:      mySQLAborted,
		ReadPatience: "SELECT @@SESSION.innodb_lock_wait_timeout",
		SetPatience: func(d time.Duration) string {
			return fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", max(1, int64(d.Seconds())))
		},
		Restored:       true,
		SkipLocked:     " FOR UPDATE SKIP LOCKED",
		Slice:          "{where} LIMIT {n}",
		migrationBegin: "DO GET_LOCK('{table}', 60)", migrationEnd: "DO RELEASE_LOCK('{table}')",
		migrationAbort: "DO RELEASE_LOCK('{table}')",
	},
	SQLite: {
		Name: "sqlite", OneWriter: true,
		Now:            "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
		KeepOld:        " ON CONFLICT DO NOTHING",
		Busy:           sqliteBusy,
		Unreachable:    sqliteUnreachable,
		Aborted:        sqliteBusy, // COMMIT found a reader in its way and changed nothing; drivers then roll back
		ReadPatience:   "PRAGMA busy_timeout",
		SetPatience:    func(d time.Duration) string { return fmt.Sprintf("PRAGMA busy_timeout = %d", d.Milliseconds()) },
		Restored:       true,
		Slice:          "rowid IN (SELECT rowid FROM {table} WHERE {where} LIMIT {n})",
		migrationBegin: "BEGIN IMMEDIATE", migrationEnd: "COMMIT", migrationAbort: "ROLLBACK",
	},
}
