package sqldb

import (
	"database/sql"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	_ "modernc.org/sqlite"
)

const (
	first = "CREATE TABLE {table} (id TEXT PRIMARY KEY, created_at INTEGER);\n" +
		"CREATE INDEX {index}_at ON {table} (created_at);\n"
	tomorrow = "ALTER TABLE {table} ADD COLUMN tomorrow TEXT;\n"
	insert   = `INSERT INTO {table} (id, created_at) VALUES (?, {now})`
)

// steps are those of a room.
func steps(texts ...string) fs.FS {
	names := []string{"ddl/sqlite/0001_first.sql", "ddl/sqlite/0002_tomorrow.sql"}
	files := fstest.MapFS{}
	for i, text := range texts {
		files[names[i]] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(20000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// An SDK of tomorrow has one more step; the tables of today are upgraded by it, and refused by the SDK of today then.
func TestATableIsUpgradedAndNeverDowngraded(t *testing.T) {
	t.Parallel()
	db := open(t)
	table := func(texts ...string) *Table { return NewTable(db, SQLite, "rows_of_ours", steps(texts...)) }
	today := table(first)
	if err := today.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if inserted, err := today.InsertNew(t.Context(), db, insert, "1001"); err != nil || !inserted {
		t.Fatal(inserted, err)
	}
	if err := table(first, tomorrow+"CREATE TABLE {table} (twice INT);\n").Migrate(t.Context()); err == nil {
		t.Fatal("a broken step was taken")
	}
	for range 2 { // the second time there is nothing to do
		if err := table(first, tomorrow).Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if inserted, err := today.InsertNew(t.Context(), db, insert, "1001"); err != nil || inserted {
		t.Errorf("after the upgrade: inserted again %v, %v", inserted, err)
	}
	if err := today.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("a newer table is taken with %v", err)
	}
}

func TestManyMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	table := NewTable(open(t), SQLite, "rows_of_ours", steps(first))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := table.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

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
