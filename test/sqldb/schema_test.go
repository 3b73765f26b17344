// Package sqldb_test tests migrations on PostgreSQL, MariaDB and SQLite.
package sqldb_test

import (
	"database/sql"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/msghandler/msghandler/internal/ground/sqldb"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

const (
	first  = "CREATE TABLE {table} (id VARCHAR(64) PRIMARY KEY, created_at BIGINT);\n"
	second = "ALTER TABLE {table} ADD COLUMN tomorrow INT;\n"
	insert = `INSERT INTO {table} (id, created_at) VALUES (?, {now})`
)

// room is where tables are made.
type room struct {
	dialect sqldb.Dialect
	db      *sql.DB
	// broken is a second step that fails: after its first statement, if a step may have several.
	broken string
}

func onEach(t *testing.T, test func(t *testing.T, r room)) {
	t.Parallel()
	const twice = second + "CREATE TABLE {table} (twice INT);\n"
	for name, build := range map[string]func(t *testing.T) room{
		"postgresql": func(t *testing.T) room {
			d := servers.PostgreSQL(t)
			return room{sqldb.PostgreSQL, open(t, d.Driver, d.DSN), twice}
		},
		"mariadb": func(t *testing.T) room {
			d := servers.MariaDB(t)
			twiceAdded := "ALTER TABLE {table} ADD COLUMN tomorrow INT, ADD COLUMN id INT;\n"
			return room{sqldb.MySQL, open(t, d.Driver, d.DSN), twiceAdded}
		},
		"sqlite": func(t *testing.T) room {
			return room{
				sqldb.SQLite, open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(20000)"),
				twice,
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, build(t))
		})
	}
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// table is a table of an SDK with these steps.
func (r room) table(texts ...string) *sqldb.Table {
	files := fstest.MapFS{}
	for i, text := range texts {
		files[fmt.Sprintf("ddl/%s/%04d.sql", r.dialect, i+1)] = &fstest.MapFile{Data: []byte(text)}
	}
	return sqldb.NewTable(r.db, r.dialect, "rows_of_ours", fs.FS(files))
}

// A newer SDK has another step: the newer SDK upgrades an older table, which the older SDK then refuses.
func TestATableIsUpgradedAndNeverDowngraded(t *testing.T) {
	onEach(t, func(t *testing.T, r room) {
		today := r.table(first)
		if err := today.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if inserted, err := today.InsertNew(t.Context(), r.db, insert, "1001"); err != nil || !inserted {
			t.Fatal(inserted, err)
		}
		if err := r.table(first, r.broken).Migrate(t.Context()); err == nil {
			t.Fatal("a broken step was taken")
		}
		for range 2 { // the second time there is nothing to do
			if err := r.table(first, second).Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if inserted, err := today.InsertNew(t.Context(), r.db, insert, "1001"); err != nil || inserted {
			t.Errorf("after the upgrade: inserted again %v, %v", inserted, err)
		}
		if err := today.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "newer") {
			t.Errorf("a newer table is taken with %v", err)
		}
	})
}

// A compatible step does not shut the older SDK out, which may also start again. A later step that is not compatible
// does.
func TestOlderSDKGoesOnAfterACompatibleStep(t *testing.T) {
	onEach(t, func(t *testing.T, r room) {
		const third = "ALTER TABLE {table} ADD COLUMN later INT;\n"
		old := r.table(first)
		if err := old.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		steps := fstest.MapFS{}
		for name, text := range map[string]string{"0001.sql": first, "0002.compatible.sql": second} {
			steps["ddl/"+r.dialect.String()+"/"+name] = &fstest.MapFile{Data: []byte(text)}
		}
		compatible := func() *sqldb.Table { return sqldb.NewTable(r.db, r.dialect, "rows_of_ours", steps) }
		for range 2 { // the second time there is nothing to do
			if err := compatible().Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.db.ExecContext(t.Context(), "SELECT tomorrow FROM rows_of_ours"); err != nil {
			t.Error(err)
		}
		if err := old.Migrate(t.Context()); err != nil {
			t.Errorf("the older SDK: %v", err)
		}
		steps["ddl/"+r.dialect.String()+"/0003.sql"] = &fstest.MapFile{Data: []byte(third)}
		if err := compatible().Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, table := range map[string]*sqldb.Table{"first": old, "second": r.table(first, second)} {
			if err := table.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "newer") {
				t.Errorf("the %s SDK takes a newer table with %v", name, err)
			}
		}
	})
}

// The statements of DDL leave a table that Migrate takes as its own, with compatible steps too.
func TestDDLRecordsEveryStep(t *testing.T) {
	onEach(t, func(t *testing.T, r room) {
		steps := fstest.MapFS{}
		for name, text := range map[string]string{
			"0001.sql": first, "0002.compatible.sql": second,
			"0003.compatible.sql": "ALTER TABLE {table} ADD COLUMN later INT;\n",
		} {
			steps["ddl/"+r.dialect.String()+"/"+name] = &fstest.MapFile{Data: []byte(text)}
		}
		table := sqldb.NewTable(r.db, r.dialect, "rows_of_ours", steps)
		statements, err := table.DDL()
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range statements {
			if _, err := r.db.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		if err := table.Migrate(t.Context()); err != nil {
			t.Error(err)
		}
		if err := r.table(first).Migrate(t.Context()); err != nil {
			t.Errorf("an older SDK: %v", err)
		}
	})
}

func TestManyMayMigrateAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, r room) {
		table := r.table(first)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := table.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

// On a server with a local time zone an hour of its own clock repeats in autumn.
func TestMariaDBClockIgnoresLocalTime(t *testing.T) {
	t.Setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
	d := servers.PrivateMariaDB(t)
	db := open(t, d.Driver, d.DSN)
	db.SetMaxOpenConns(1) // as the time is set for a session
	change := time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC)
	var local string
	for _, at := range []time.Time{change.Add(-time.Hour), change.Add(-time.Second), change, change.Add(time.Hour)} {
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf("SET timestamp = %d", at.Unix())); err != nil {
			t.Fatal(err)
		}
		var now int64
		if err := db.QueryRowContext(t.Context(), "SELECT NOW(), "+sqldb.MySQL.Traits().Now).Scan(&local, &now); err != nil {
			t.Fatal(err)
		}
		if now != at.UnixMilli() {
			t.Errorf("at %v, %s there: %v", at, local, time.UnixMilli(now).UTC())
		}
	}
	if !strings.HasPrefix(local, "2026-10-25 03:00:00") {
		t.Fatalf("two hours later it is %s: the server has no summer time", local)
	}
}

// On PostgreSQL every statement waits behind an ALTER that waits, so the ALTER gives up. A step before a failed one
// stays: its locks end with the step.
func TestPostgreSQLStepsEndOneByOne(t *testing.T) {
	t.Parallel()
	d := servers.PostgreSQL(t)
	r := room{sqldb.PostgreSQL, open(t, d.Driver, d.DSN), ""}
	if err := r.table(first).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	reader, err := r.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.ExecContext(t.Context(), "SELECT id FROM rows_of_ours"); err != nil {
		t.Fatal(err)
	}
	if err := r.table(first, second).Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "lock timeout") {
		t.Errorf("with a transaction that stays open: %v", err)
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	const broken = "ALTER TABLE {table} ADD COLUMN id INT;\n"
	if err := r.table(first, second, broken).Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "step 3") {
		t.Errorf("the third step is broken: %v", err)
	}
	if _, err := r.db.ExecContext(t.Context(), "SELECT tomorrow FROM rows_of_ours"); err != nil {
		t.Errorf("the second step has not ended: %v", err)
	}
}
