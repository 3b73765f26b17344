package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestErrorsAreClassifiedWithoutDrivers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"Error 1062 (23000): Duplicate entry": true, "Error 1062: Duplicate entry": true,
		"mark: Error 1062 (23000): x": true, "Error 10621: x": false, "Error 1205 (HY000): x": false,
	} {
		if got := mySQLDuplicate(textError(text)); got != want {
			t.Errorf("%q is a duplicate: %v", text, got)
		}
	}
	if mySQLBusy(nil) || sqliteBusy(nil) || postgreSQLBusy(nil) {
		t.Error("no error is busy")
	}
	if !sqliteBusy(textError("database is locked")) || sqliteBusy(textError("no such table")) {
		t.Error("an error of SQLite without a code is not understood")
	}
	// A lock timeout, a serialization failure, a deadlock and a time limit decide nothing; any other failure is an
	// error.
	for state, want := range map[string]bool{
		"55P03": true, "40001": true, "40P01": true, "57014": true, "23505": false, "25006": false, "08006": false,
	} {
		if got := postgreSQLBusy(fmt.Errorf("mark: %w", stateError{textError(state)})); got != want {
			t.Errorf("SQLState %s is busy: %v", state, got)
		}
	}
	for text, want := range map[string]bool{
		"Error 1205 (HY000): Lock wait timeout exceeded": true, "Error 1213 (40001): Deadlock found": true,
		"Error 1020 (HY000): Record has changed": true, "Error 1062 (23000): Duplicate entry": false,
	} {
		if got := mySQLBusy(textError(text)); got != want {
			t.Errorf("%q is busy: %v", text, got)
		}
	}
}

// A transient failure is retried before the business begins; an error of COMMIT is certain only as an answer of the
// database.
func TestTransientErrorsAreRecognized(t *testing.T) {
	t.Parallel()
	lost := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	for name, row := range map[string]struct {
		dialect            Dialect
		err                error
		transient, aborted bool
	}{
		"serialization failure":         {PostgreSQL, stateError{"40001"}, true, true},
		"deadlock":                      {PostgreSQL, stateError{"40P01"}, true, true},
		"no lock in time":               {PostgreSQL, stateError{"55P03"}, true, false},
		"terminated by an operator":     {PostgreSQL, stateError{"57P01"}, true, false},
		"starting up":                   {PostgreSQL, stateError{"57P03"}, true, false},
		"connection exception":          {PostgreSQL, stateError{"08006"}, true, false},
		"a standby after a failover":    {PostgreSQL, stateError{"25006"}, true, false},
		"no table":                      {PostgreSQL, stateError{"42P01"}, false, false},
		"a forgotten statement":         {PostgreSQL, stateError{"26000"}, true, false},
		"a statement of another":        {PostgreSQL, stateError{"42P05"}, true, false},
		"columns of old":                {PostgreSQL, errStale, true, false},
		"disk full":                     {PostgreSQL, stateError{"53100"}, true, false},
		"an error of the file system":   {PostgreSQL, stateError{"58030"}, true, false},
		"disk full, MariaDB":            {MySQL, textError("Error 1021 (HY000): Disk full"), true, false},
		"a full table, MariaDB":         {MySQL, textError("Error 1114 (HY000): The table is full"), true, false},
		"disk full, SQLite":             {SQLite, codeError{"disk is full", 13}, true, false},
		"an error of the disk, SQLite":  {SQLite, codeError{"disk I/O error", 10 | 3<<8}, true, false},
		"no table, SQLite":              {SQLite, codeError{"no such table", 1}, false, false},
		"a feature":                     {PostgreSQL, routineError{"0A000", "parse"}, false, false},
		"a table altered since, MySQL":  {MySQL, textError("Error 1412 (HY000): Table definition has changed"), true, false},
		"reset":                         {PostgreSQL, lost, true, false},
		"ended in the middle":           {PostgreSQL, io.ErrUnexpectedEOF, true, false},
		"closed before it was sent":     {PostgreSQL, unsentError{"conn closed"}, true, false},
		"no connection any more":        {PostgreSQL, sql.ErrConnDone, true, false},
		"no transaction any more":       {MySQL, sql.ErrTxDone, true, false},
		"an ended context":              {PostgreSQL, context.DeadlineExceeded, false, false},
		"nothing":                       {PostgreSQL, nil, false, false},
		"a deadlock of MariaDB":         {MySQL, textError("Error 1213 (40001): Deadlock found"), true, true},
		"no lock in time of MariaDB":    {MySQL, textError("Error 1205 (HY000): Lock wait timeout"), true, false},
		"killed":                        {MySQL, textError("Error 1927 (70100): Connection was killed"), true, false},
		"ended in the middle, MariaDB":  {MySQL, textError("invalid connection"), true, false},
		"pool of a driver, bad":         {MySQL, driver.ErrBadConn, true, false},
		"read-only after a failover":    {MySQL, textError("Error 1290 (HY000): --read-only"), true, false},
		"read-only transaction":         {MySQL, textError("Error 1792 (25006): READ ONLY transaction"), false, false},
		"no table in MariaDB":           {MySQL, textError("Error 1146 (42S02): Table doesn't exist"), false, false},
		"a lock of SQLite":              {SQLite, textError("database is locked (5) (SQLITE_BUSY)"), true, true},
		"another's constraint, SQLite":  {SQLite, textError("constraint failed"), false, false},
		"a read-only database, SQLite ": {SQLite, textError("attempt to write a readonly database"), false, false},
	} {
		err := row.err
		if err != nil {
			err = fmt.Errorf("mark: %w", err)
		}
		traits := row.dialect.Traits()
		if traits.Transient(err) != row.transient || traits.Aborted(err) != row.aborted {
			t.Errorf("%s: transient %v, aborted %v", name, traits.Transient(err), traits.Aborted(err))
		}
	}
}

// What is not known may be sent again: only known errors are refusals.
func TestOnlyKnownErrorsAreRefusals(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		dialect Dialect
		err     error
		refused bool
	}{
		"no table":              {PostgreSQL, stateError{"42P01"}, true},
		"no permission":         {PostgreSQL, stateError{"42501"}, true},
		"a constraint":          {PostgreSQL, stateError{"23514"}, true},
		"a feature":             {PostgreSQL, stateError{"0A000"}, true},
		"columns of old":        {PostgreSQL, errStale, false},
		"a pooler's statement":  {PostgreSQL, stateError{"42P05"}, false},
		"a new password":        {PostgreSQL, stateError{"28P01"}, false},
		"a standby":             {PostgreSQL, stateError{"25006"}, false},
		"disk full":             {PostgreSQL, stateError{"53100"}, false},
		"unknown, PostgreSQL":   {PostgreSQL, textError("conn closed"), false},
		"nothing":               {PostgreSQL, nil, false},
		"no table, MariaDB":     {MySQL, textError("Error 1146 (42S02): Table doesn't exist"), true},
		"a constraint, MariaDB": {MySQL, textError("Error 4025 (23000): CONSTRAINT failed"), true},
		"read-only transaction": {MySQL, textError("Error 1792 (25006): READ ONLY transaction"), true},
		"Galera not ready":      {MySQL, textError("Error 1047 (08S01): WSREP has not yet prepared node"), false},
		"nothing, MySQL":        {MySQL, nil, false},
		"unknown, SQLite":       {SQLite, textError("disk I/O error"), false},
	} {
		if got := row.dialect.Traits().Refused(row.err); got != row.refused {
			t.Errorf("%s: refused %v", name, got)
		}
	}
}

// unsentError is an error of pgx.
type unsentError struct{ textError }

func (unsentError) SafeToRetry() bool { return true }

// codeError is an error of SQLite.
type codeError struct {
	textError
	code int
}

func (e codeError) Code() int { return e.code }

// stateError is an error of PostgreSQL.
type stateError struct{ textError }

func (e stateError) SQLState() string { return string(e.textError) }

// routineError is an error of PostgreSQL as drivers give it.
type routineError struct{ state, Routine string }

func (e routineError) Error() string    { return e.state }
func (e routineError) SQLState() string { return e.state }

var errStale = routineError{"0A000", "RevalidateCachedQuery"}

type textError string

func (e textError) Error() string { return string(e) }

func TestATableHasAPlainName(t *testing.T) {
	t.Parallel()
	for name, dialects := range map[string][]Dialect{
		"markers": {PostgreSQL, MySQL, SQLite}, "shop.markers": {PostgreSQL, MySQL}, "a.b.c": nil, "drop table": nil, "": nil,
		strings.Repeat("t", 48): {PostgreSQL, MySQL, SQLite}, strings.Repeat("t", 49): nil,
	} {
		for _, dialect := range []Dialect{PostgreSQL, MySQL, SQLite} {
			if err := CheckName(dialect, name); (err == nil) != slices.Contains(dialects, dialect) {
				t.Errorf("%q on %v: %v", name, dialect, err)
			}
		}
	}
}
