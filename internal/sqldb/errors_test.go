package sqldb

import (
	"fmt"
	"slices"
	"testing"
)

func TestErrorsAreToldByWhatDriversHaveInCommon(t *testing.T) {
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
		t.Error("what SQLite says without a code is not understood")
	}
	// A lock that was not to be had, a serialization failure, a deadlock and a time limit decide nothing; anything else is an
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

// stateError is one of PostgreSQL.
type stateError struct{ textError }

func (e stateError) SQLState() string { return string(e.textError) }

type textError string

func (e textError) Error() string { return string(e) }

func TestATableHasAPlainName(t *testing.T) {
	t.Parallel()
	for name, dialects := range map[string][]Dialect{
		"markers": {PostgreSQL, MySQL, SQLite}, "shop.markers": {PostgreSQL, MySQL}, "a.b.c": nil, "drop table": nil, "": nil,
	} {
		for _, dialect := range []Dialect{PostgreSQL, MySQL, SQLite} {
			if err := CheckName(dialect, name); (err == nil) != slices.Contains(dialects, dialect) {
				t.Errorf("%q on %v: %v", name, dialect, err)
			}
		}
	}
}
