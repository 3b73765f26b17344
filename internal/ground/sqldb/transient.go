package sqldb

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"syscall"
)

// Transient reports whether a statement failed for a transient reason: it had to wait for others (Busy), its table has
// changed (Stale), the connection was lost, the server is starting, stopping or full, or the driver says that nothing
// was sent. After such an error of COMMIT the transaction may have committed.
func (t *Traits) Transient(err error) bool {
	return err != nil && (t.Busy(err) || t.Stale(err) || lostConnection(err) || t.Unreachable(err) || unsent(err))
}

// unsent reports what pgx says of an error: the server has seen nothing of the statement.
func unsent(err error) bool {
	var e interface{ SafeToRetry() bool }
	return errors.As(err, &e) && e.SafeToRetry()
}

// lostConnection recognizes the errors of drivers and the network for a refused or ended connection.
func lostConnection(err error) bool {
	for _, lost := range []error{
		driver.ErrBadConn, sql.ErrConnDone, sql.ErrTxDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
	} {
		if errors.Is(err, lost) {
			return true
		}
	}
	var network *net.OpError
	return errors.As(err, &network)
}

// postgreSQLUnreachable: connection exceptions, a server that is stopping, crashed or starting, or lacks connections,
// memory or space (53), or has an error of its system (58), and a server that is read-only after a failover.
func postgreSQLUnreachable(err error) bool {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return false
	}
	state := e.SQLState()
	return len(state) == 5 && slices.Contains([]string{"08", "53", "58"}, state[:2]) ||
		slices.Contains([]string{"57P01", "57P02", "57P03"}, state) || postgreSQLReadOnly(err)
}

// mySQLUnreachable: too many connections, no space or memory, a server that is stopping, a killed connection or query,
// a full table, a server that is read-only after a failover, and the error of go-sql-driver for a connection that ended
// during a statement.
func mySQLUnreachable(err error) bool {
	return hasOneOf(err, "1021", "1040", "1041", "1053", "1114", "1317", "1927") || mySQLReadOnly(err) ||
		strings.Contains(err.Error(), "invalid connection")
}

// Advise adds the remedy to an error of a pooler that gives each transaction another session: the session lacks the
// statements that the driver has prepared, or has those of another client under the same names.
func (t *Traits) Advise(err error) error {
	var e interface{ SQLState() string }
	if errors.As(err, &e) && (e.SQLState() == "26000" || e.SQLState() == "42P05") {
		return fmt.Errorf("%w; behind a pooler prepare no statements: of pgx, set default_query_exec_mode=exec", err)
	}
	return err
}

// postgreSQLStale: a prepared statement that the session has not got any more, as after DISCARD ALL, or has of another
// client, as behind a pooler, and a plan whose columns have changed. The last shares its code with features that do not
// exist, and its text has many languages: the driver's error names the routine of the server. The driver prepares a
// statement anew after any error.
func postgreSQLStale(err error) bool {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return false
	}
	return e.SQLState() == "26000" || e.SQLState() == "42P05" ||
		e.SQLState() == "0A000" && routineOf(e) == "RevalidateCachedQuery"
}

// routineOf is the field Routine of an error of pgx and lib/pq.
func routineOf(e any) string {
	of := reflect.Indirect(reflect.ValueOf(e))
	if of.Kind() != reflect.Struct {
		return ""
	}
	routine := of.FieldByName("Routine")
	if !routine.IsValid() || routine.Kind() != reflect.String {
		return ""
	}
	return routine.String()
}

// mySQLStale: a prepared statement that the session has not got any more, as behind a proxy, a table that has changed
// since the snapshot of the transaction, and one that changes while its statements are prepared.
func mySQLStale(err error) bool { return hasOneOf(err, "1243", "1412", "1615") }

// sqliteStale: SQLITE_SCHEMA.
func sqliteStale(err error) bool {
	var e interface{ Code() int }
	return errors.As(err, &e) && e.Code()&0xff == 17
}

// postgreSQLMissing: undefined_table.
func postgreSQLMissing(err error) bool {
	var e interface{ SQLState() string }
	return errors.As(err, &e) && e.SQLState() == "42P01"
}

func mySQLMissing(err error) bool { return hasNumber(err, "1146") }

// sqliteMissing knows the text alone: the code is that of any bad statement.
func sqliteMissing(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no such table")
}

// postgreSQLReadOnly: read_only_sql_transaction.
func postgreSQLReadOnly(err error) bool {
	var e interface{ SQLState() string }
	return errors.As(err, &e) && e.SQLState() == "25006"
}

// mySQLReadOnly: the options --read-only and --super-read-only, and read-only mode.
func mySQLReadOnly(err error) bool { return hasOneOf(err, "1290", "1836") }

func hasOneOf(err error, numbers ...string) bool {
	return slices.ContainsFunc(numbers, func(number string) bool { return hasNumber(err, number) })
}

// Unfit reports that the database does not take a value, such as a text that its encoding lacks (of PostgreSQL 22, of
// MySQL 1366 and 1406), or takes no statement because an earlier one of the transaction has failed (25P02).
func (t *Traits) Unfit(err error) bool {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return strings.HasPrefix(e.SQLState(), "22") || e.SQLState() == "25P02"
	}
	return hasOneOf(err, "1366", "1406")
}

// postgreSQLRefused: a feature, a value, a constraint, a schema, and all of syntax, names and rights.
func postgreSQLRefused(err error) bool {
	var e interface{ SQLState() string }
	return errors.As(err, &e) && len(e.SQLState()) == 5 && !postgreSQLStale(err) &&
		slices.Contains([]string{"0A", "22", "23", "3F", "42"}, e.SQLState()[:2])
}

// mySQLRefused: no such database, table or column, no right, bad syntax, a read-only transaction, a value that does not
// fit, and a constraint (MySQL, MariaDB).
func mySQLRefused(err error) bool {
	for _, number := range []string{
		"1044", "1049", "1054", "1064", "1142", "1143", "1146", "1366", "1406", "1792", "3819", "4025",
	} {
		if hasNumber(err, number) {
			return true
		}
	}
	return false
}

// sqliteRefused: SQLITE_ERROR, such as for a missing table, READONLY, TOOBIG, CONSTRAINT and MISMATCH.
func sqliteRefused(err error) bool {
	var e interface{ Code() int }
	if errors.As(err, &e) {
		return slices.Contains([]int{1, 8, 18, 19, 20}, e.Code()&0xff)
	}
	return false
}

// sqliteUnreachable: NOMEM, IOERR, FULL and CANTOPEN.
func sqliteUnreachable(err error) bool {
	var e interface{ Code() int }
	return errors.As(err, &e) && slices.Contains([]int{7, 10, 13, 14}, e.Code()&0xff)
}

// postgreSQLAborted: serialization_failure and deadlock_detected.
func postgreSQLAborted(err error) bool {
	var e interface{ SQLState() string }
	return errors.As(err, &e) && (e.SQLState() == "40001" || e.SQLState() == "40P01")
}

// mySQLAborted: a deadlock, which is also a cluster's error for a transaction that another server's transaction
// overtook.
func mySQLAborted(err error) bool { return hasNumber(err, "1213") }
