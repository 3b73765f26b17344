package sqldb

import (
	"database/sql"
	"fmt"
	"time"
)

// Dialect is the kind of a database.
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

// Traits returns the properties of a dialect; nil for a dialect that does not exist.
func (d Dialect) Traits() *Traits { return traits[d] }

// Traits lists the differences between the databases.
type Traits struct {
	Name string
	// Dollars: parameters are $1, $2, not question marks.
	Dollars bool
	// Now is the database's clock in milliseconds, constant during a statement: an index cannot be searched for a time
	// that changes meanwhile.
	Now string
	// KeepOld ends an INSERT that keeps existing rows. Such an INSERT waits for a transaction that has written one of
	// the rows. Every table has a column created_at for KeepOld.
	KeepOld string
	// Duplicate: the error of an INSERT reports an existing row; otherwise the count of rows does.
	Duplicate func(err error) bool
	// Latest ends a SELECT that must see rows which others have committed since the transaction began.
	Latest string
	// Busy reports that a statement gave up waiting for other transactions, or was the victim of a deadlock.
	Busy func(err error) bool
	// Unreachable reports that the server ended the connection, or refused a connection.
	Unreachable func(err error) bool
	// Aborted reports, for an error of COMMIT, that the database has rolled the transaction back, for a transient
	// reason. Any other error of COMMIT leaves the outcome open.
	Aborted func(err error) bool
	// OneWriter: a write waits for every other write.
	OneWriter bool
	// Level is the isolation level of a table's own transactions and reads; the zero value is the driver's.
	Level sql.IsolationLevel
	// LookInTx: a read takes a transaction, so that no setting of the session shows uncommitted rows.
	LookInTx bool
	// ReadPatience and SetPatience read and set how long a connection waits for a lock.
	ReadPatience string
	SetPatience  func(d time.Duration) string
	// Restored: the setting belongs to the session, and is restored. Otherwise the setting ends with the transaction.
	Restored bool
	// SkipLocked ends the SELECT of a claim.
	SkipLocked string
	// Slice names the rows of a purge's slice. A ctid of PostgreSQL names a row of one partition, and other rows in other
	// partitions, so the condition stands beside the ctid too.
	Slice string
	// Statements around a migration, so that migrations run one at a time.
	migrationBegin, migrationEnd, migrationAbort string
	// migrationNext ends one step and begins the next; empty where all steps are one transaction, or each statement is.
	migrationNext string
}

// migratePostgreSQL begins a step. All statements queue behind an ALTER that waits for a long transaction, so the ALTER
// gives up, and the next start of a program tries again.
const migratePostgreSQL = "BEGIN; SELECT pg_advisory_xact_lock(7263871209); SET LOCAL lock_timeout = '5s'"

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
		Slice:       "{where} AND ctid IN (SELECT ctid FROM {table} WHERE {where} LIMIT {n})",
		// The number is arbitrary, and must differ from the locks of other programs.
		migrationBegin: migratePostgreSQL, migrationEnd: "COMMIT", migrationAbort: "ROLLBACK",
		// Otherwise readers would wait until the last index is built.
		migrationNext: "COMMIT; " + migratePostgreSQL,
	},
	MySQL: {
		Name: "mysql", Level: sql.LevelReadCommitted, LookInTx: true,
		// Not from NOW(), which is local time: in autumn an hour repeats.
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
		migrationBegin: "DO GET_LOCK('{table}', 86400)", migrationEnd: "DO RELEASE_LOCK('{table}')",
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
