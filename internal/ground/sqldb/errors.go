package sqldb

import (
	"errors"
	"strings"
)

// Classes of errors are recognized by properties that all drivers share, so that no driver is imported: PostgreSQL's
// errors have an SQLState, SQLite's have a Code, and MySQL's begin with "Error NUMBER".

// postgreSQLBusy: lock_not_available, serialization_failure, deadlock_detected, query_canceled by a timeout.
func postgreSQLBusy(err error) bool {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return false
	}
	switch e.SQLState() {
	case "55P03", "40001", "40P01", "57014":
		return true
	}
	return false
}

// mySQLBusy: lock wait timeout, deadlock, and a row that changed under a snapshot (MariaDB).
func mySQLBusy(err error) bool {
	return hasNumber(err, "1205") || hasNumber(err, "1213") || hasNumber(err, "1020")
}

func mySQLDuplicate(err error) bool { return hasNumber(err, "1062") }

// hasNumber finds "Error 1062 (23000): ..." or "Error 1062: ..." in a driver's text.
func hasNumber(err error, number string) bool {
	if err == nil {
		return false
	}
	_, rest, found := strings.Cut(err.Error(), "Error "+number)
	return found && (strings.HasPrefix(rest, " (") || strings.HasPrefix(rest, ":"))
}

// sqliteBusy: SQLITE_BUSY and SQLITE_LOCKED, with their extended codes.
func sqliteBusy(err error) bool {
	var e interface{ Code() int }
	if errors.As(err, &e) {
		primary := e.Code() & 0xff
		return primary == 5 || primary == 6
	}
	return err != nil && strings.Contains(err.Error(), "is locked")
}
