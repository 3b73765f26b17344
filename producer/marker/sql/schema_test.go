package sql

import (
	"database/sql"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	_ "modernc.org/sqlite"
)

func sqliteStore(t *testing.T) *Store {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(20000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s, err := New(Config{DB: db, Dialect: SQLite, Producer: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An SDK of tomorrow has one more step; the tables of today are upgraded by it, and refused by the SDK of today then.
func TestATableIsUpgradedAndNeverDowngraded(t *testing.T) {
	t.Parallel()
	s := sqliteStore(t)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), []string{"1001"}, 2); err != nil {
		t.Fatal(err)
	}
	first, err := ddl.ReadFile("ddl/sqlite/0001_markers.sql")
	if err != nil {
		t.Fatal(err)
	}
	step := func(text string) fstest.MapFS {
		return fstest.MapFS{
			"ddl/sqlite/0001_markers.sql": {Data: first}, "ddl/sqlite/0002_tomorrow.sql": {Data: []byte(text)},
		}
	}
	broken := "ALTER TABLE {table} ADD COLUMN tomorrow TEXT;\nCREATE TABLE {table} (twice INT);\n"
	if err := s.migrate(t.Context(), step(broken)); err == nil {
		t.Fatal("a broken step was taken")
	}
	for range 2 { // the second time there is nothing to do
		if err := s.migrate(t.Context(), step("ALTER TABLE {table} ADD COLUMN tomorrow TEXT;\n")); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := s.Lookup(t.Context(), []string{"1001"}, false); err != nil || len(found) != 1 {
		t.Errorf("after the upgrade: %v, %v", found, err)
	}
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("a newer table is taken with %v", err)
	}
}

func TestManyMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	s := sqliteStore(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := s.Migrate(t.Context()); err != nil {
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
}

type textError string

func (e textError) Error() string { return string(e) }
