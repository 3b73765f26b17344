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
	// Unreachable reports that the server ended or refused a connection, or lacks space, memory or connections.
	Unreachable func(err error) bool
	// Stale reports that what the session knows of a table is older than the table: nothing was done, and the same
	// statement works in a new transaction.
	Stale func(err error) bool
	// Missing reports that a table does not exist.
	Missing func(err error) bool
	// ReadOnly reports that the server takes no writes: it was demoted, or is a standby.
	ReadOnly func(err error) bool
	// Refused reports that the database refuses the statement for good. What is not known is not refused.
	Refused func(err error) bool
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
	// RemoveSlice removes a slice of old rows. A ctid of PostgreSQL names a row of one partition, and other rows in other
	// partitions, so the condition stands beside the ctid too. The order makes PostgreSQL and SQLite read the index of the
	// age: a scan of the table would pass all rows that are kept, and on PostgreSQL those that were removed before. MySQL
	// has to be told: where most rows are old, MariaDB reads the table's own order, and each slice passes the rows that
	// stay. The rows of another purge are left to it, or both would wait for each other.
	RemoveSlice string
	// commitsBegin and commitsEnd are the statements between which a session commits no statement by itself; empty where
	// no session does so after an error.
	commitsBegin, commitsEnd string
	// refusesAfterError: after an error a transaction takes no statement, and COMMIT is an error.
	refusesAfterError bool
	// tableExists and keyExists are conditions: the table is there, and has a primary key.
	tableExists, keyExists string
	// Statements around the creation of a table, so that creations run one at a time; empty where the statement itself
	// gives way to another one.
	creationBegin, creationEnd, creationAbort string
}

var traits = map[Dialect]*Traits{
	PostgreSQL: {
		Name: "postgresql", Dollars: true, refusesAfterError: true, Level: sql.LevelReadCommitted,
		Now:         "(EXTRACT(EPOCH FROM statement_timestamp()) * 1000)::BIGINT",
		KeepOld:     " ON CONFLICT DO NOTHING",
		Busy:        postgreSQLBusy,
		Unreachable: postgreSQLUnreachable,
		Stale:       postgreSQLStale,
		Missing:     postgreSQLMissing,
		ReadOnly:    postgreSQLReadOnly,
		Refused:     postgreSQLRefused,
		Aborted:     postgreSQLAborted,
		SetPatience: func(d time.Duration) string { return fmt.Sprintf("SET LOCAL lock_timeout = %d", d.Milliseconds()) },
		SkipLocked:  " FOR UPDATE SKIP LOCKED",
		RemoveSlice: "DELETE FROM {table} WHERE {where} AND ctid IN (" +
			"SELECT ctid FROM {table} WHERE {where} ORDER BY {age} LIMIT {n})",
		// pg_class is read because to_regclass alone does not see a table that was created since the transaction began.
		tableExists: "EXISTS (SELECT 1 FROM pg_class WHERE oid = to_regclass('{table}'))",
		keyExists:   "EXISTS (SELECT 1 FROM pg_index WHERE indrelid = to_regclass('{table}') AND indisprimary)",
		// The number is arbitrary, and must differ from the locks of other programs.
		creationBegin: "BEGIN; SELECT pg_advisory_xact_lock(7263871209)", creationEnd: "COMMIT", creationAbort: "ROLLBACK",
	},
	MySQL: {
		Name: "mysql", Level: sql.LevelReadCommitted, LookInTx: true,
		commitsBegin: "SET autocommit = 0", commitsEnd: "SET autocommit = 1",
		// Not from NOW(), which is local time: in autumn an hour repeats.
		Now:          "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)",
		KeepOld:      " ON DUPLICATE KEY UPDATE created_at = created_at",
		Duplicate:    mySQLDuplicate,
		Latest:       " LOCK IN SHARE MODE",
		Busy:         mySQLBusy,
		Unreachable:  mySQLUnreachable,
		Stale:        mySQLStale,
		Missing:      mySQLMissing,
		ReadOnly:     mySQLReadOnly,
		Refused:      mySQLRefused,
		Aborted:      mySQLAborted,
		ReadPatience: "SELECT @@SESSION.innodb_lock_wait_timeout",
		SetPatience: func(d time.Duration) string {
			return fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", max(1, int64(d.Seconds())))
		},
		Restored:   true,
		SkipLocked: " FOR UPDATE SKIP LOCKED",
		RemoveSlice: "DELETE t FROM {table} t JOIN (SELECT {key} FROM {table} FORCE INDEX ({old}) WHERE {where} " +
			"ORDER BY {age} LIMIT {n} FOR UPDATE SKIP LOCKED) o USING ({key})",
		tableExists: "EXISTS (SELECT 1 FROM information_schema.tables " +
			"WHERE table_schema = {schema} AND table_name = '{index}')",
		keyExists: "EXISTS (SELECT 1 FROM information_schema.statistics " +
			"WHERE table_schema = {schema} AND table_name = '{index}' AND index_name = 'PRIMARY')",
	},
	SQLite: {
		Name: "sqlite", OneWriter: true,
		Now:          "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
		KeepOld:      " ON CONFLICT DO NOTHING",
		Busy:         sqliteBusy,
		Unreachable:  sqliteUnreachable,
		Stale:        sqliteStale,
		Missing:      sqliteMissing,
		ReadOnly:     func(error) bool { return false },
		Refused:      sqliteRefused,
		Aborted:      sqliteBusy, // COMMIT found a reader in its way and changed nothing; drivers then roll back
		ReadPatience: "PRAGMA busy_timeout",
		SetPatience:  func(d time.Duration) string { return fmt.Sprintf("PRAGMA busy_timeout = %d", d.Milliseconds()) },
		Restored:     true,
		RemoveSlice: "DELETE FROM {table} WHERE rowid IN (" +
			"SELECT rowid FROM {table} WHERE {where} ORDER BY {age} LIMIT {n})",
		tableExists:   "EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{table}' COLLATE NOCASE)",
		keyExists:     "EXISTS (SELECT 1 FROM pragma_table_info('{table}') WHERE pk > 0)",
		creationBegin: "BEGIN IMMEDIATE", creationEnd: "COMMIT", creationAbort: "ROLLBACK",
	},
}
