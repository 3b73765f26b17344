// Package sqldb_test tests migrations on PostgreSQL, MariaDB and SQLite.
package sqldb_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/internal/ground/sqldb"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox/shards"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// room is where tables are made.
type room struct {
	dialect sqldb.Dialect
	db      *sql.DB
}

func onEach(t *testing.T, test func(t *testing.T, r room)) {
	t.Parallel()
	for name, build := range map[string]func(t *testing.T) room{
		"postgresql": func(t *testing.T) room {
			d := servers.PostgreSQL(t)
			return room{sqldb.PostgreSQL, open(t, d.Driver, d.DSN)}
		},
		"mariadb": func(t *testing.T) room {
			d := servers.MariaDB(t)
			return room{sqldb.MySQL, open(t, d.Driver, d.DSN)}
		},
		"sqlite": func(t *testing.T) room {
			return room{
				sqldb.SQLite, open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(20000)"),
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

// migrator is what each SDK does with its table.
type migrator interface {
	Migrate(ctx context.Context) error
}

// purger is an SDK whose table has a purge.
type purger interface {
	migrator
	Purge(ctx context.Context) (int64, error)
}

// sdkTables are all tables of the SDKs, under their default names, of a producer or consumer "ours".
var sdkTables = map[string]func(t *testing.T, db *sql.DB, dialect sqldb.Dialect) migrator{
	"markers": func(t *testing.T, db *sql.DB, dialect sqldb.Dialect) migrator {
		return must[*sqlmarker.Store](t)(sqlmarker.New(sqlmarker.Config{DB: db, Dialect: dialect, Producer: "ours"}))
	},
	"outbox": func(t *testing.T, db *sql.DB, dialect sqldb.Dialect) migrator {
		return must[*sqlmarker.Outbox](t)(sqlmarker.NewOutbox(
			sqlmarker.OutboxConfig{DB: db, Dialect: dialect, Producer: "ours"}))
	},
	"shard_leases": func(t *testing.T, db *sql.DB, dialect sqldb.Dialect) migrator {
		return must[*shards.Leases](t)(shards.NewLeases(shards.LeasesConfig{DB: db, Dialect: dialect, Producer: "ours"}))
	},
	"inbox": func(t *testing.T, db *sql.DB, dialect sqldb.Dialect) migrator {
		return must[*sqlinbox.Inbox](t)(sqlinbox.New(sqlinbox.Config{DB: db, Dialect: dialect, Consumer: "ours"}))
	},
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// onEachTable runs a test with each table of the SDKs, migrated, on each database that the SDK supports.
func onEachTable(t *testing.T, test func(t *testing.T, r room, table migrator, name string)) {
	onEach(t, func(t *testing.T, r room) {
		for name, build := range sdkTables {
			if name == "outbox" && r.dialect == sqldb.SQLite {
				continue
			}
			table := build(t, r.db, r.dialect)
			if err := table.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			test(t, r, table, "msghandler_"+name)
		}
	})
}

// exec runs statements.
func (r room) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := r.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// A table may be lost in a restore, with other traces of a migration left.
func TestMigrateRestoresALostTable(t *testing.T) {
	onEachTable(t, func(t *testing.T, r room, table migrator, name string) {
		r.exec(t, "DROP TABLE "+name)
		for range 2 { // the second time there is nothing to do
			if err := table.Migrate(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		r.exec(t, "SELECT created_at FROM "+name)
	})
}

// The answers of new markers would take every message whose marker was lost for rolled back.
func TestLostMarkersGetANewIdentity(t *testing.T) {
	onEachTable(t, func(t *testing.T, r room, table migrator, name string) {
		if name != "msghandler_markers" {
			return
		}
		identity := func() (identity string) {
			t.Helper()
			if err := table.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := r.db.QueryRowContext(t.Context(), "SELECT identity FROM "+name+"_identity").Scan(&identity)
			if err != nil {
				t.Fatal(err)
			}
			return identity
		}
		first := identity()
		if again := identity(); again != first {
			t.Errorf("a repeated Migrate makes the identity %s of %s", again, first)
		}
		r.exec(t, "DROP TABLE "+name)
		if r.dialect == sqldb.MySQL { // a young identity is that of another process
			r.exec(t, "UPDATE "+name+"_identity SET made_at = made_at - INTERVAL 2 MINUTE")
		}
		if lost := identity(); lost == first {
			t.Error("new markers have the identity of the lost ones")
		}
	})
}

// Processes that start together on a new MySQL create the same tables: one may have the identity already, while another
// has found no markers and runs its statements. PostgreSQL and SQLite run them in one transaction.
func TestFirstIdentityStays(t *testing.T) {
	t.Parallel()
	d := servers.MariaDB(t)
	r := room{sqldb.MySQL, open(t, d.Driver, d.DSN)}
	r.db.SetMaxOpenConns(1) // the statements share a variable
	markers := must[*sqlmarker.Store](t)(sqlmarker.New(sqlmarker.Config{DB: r.db, Dialect: r.dialect, Producer: "ours"}))
	statements, err := markers.DDL()
	if err != nil {
		t.Fatal(err)
	}
	var identities []string
	for range 2 {
		for _, statement := range statements {
			if !strings.Contains(statement, "CREATE TABLE IF NOT EXISTS msghandler_markers (") {
				r.exec(t, statement)
			}
		}
		identity, err := markers.Identity(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		identities = append(identities, identity)
	}
	if identities[0] != identities[1] {
		t.Errorf("another process makes the identity %q of %q", identities[1], identities[0])
	}
}

func TestMigrateRefusesATableWithoutKey(t *testing.T) {
	onEachTable(t, func(t *testing.T, r room, table migrator, name string) {
		r.exec(t, "CREATE TABLE restored AS SELECT * FROM "+name, "DROP TABLE "+name,
			"ALTER TABLE restored RENAME TO "+name)
		if err := table.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "no primary key") {
			t.Errorf("%s: %v", name, err)
		}
	})
}

func TestMigrateRefusesATableWithoutColumn(t *testing.T) {
	onEachTable(t, func(t *testing.T, r room, table migrator, name string) {
		r.exec(t, "ALTER TABLE "+name+" RENAME COLUMN created_at TO made_at")
		err := table.Migrate(t.Context())
		if err == nil || !strings.Contains(err.Error(), "columns") || !strings.Contains(err.Error(), "created_at") {
			t.Errorf("%s: %v", name, err)
		}
		r.exec(t, "ALTER TABLE "+name+" RENAME COLUMN made_at TO created_at", "ALTER TABLE "+name+" ADD COLUMN newer INT")
		if err := table.Migrate(t.Context()); err != nil {
			t.Errorf("a column of the user's own in %s: %v", name, err)
		}
	})
}

// A creation that fails leaves nothing where the database can undo it, and no lock.
func TestFailedCreationHoldsNoLock(t *testing.T) {
	onEach(t, func(t *testing.T, r room) {
		const create = "CREATE TABLE IF NOT EXISTS {table} (\n  id VARCHAR(64) PRIMARY KEY,\n  created_at BIGINT\n);\n"
		table := func(text string) *sqldb.Table {
			file := fstest.MapFS{"ddl/" + r.dialect.String() + ".sql": &fstest.MapFile{Data: []byte(text)}}
			return sqldb.NewTable(r.db, r.dialect, "rows_of_ours", file)
		}
		if err := table(create + "CREATE INDEX i ON {table} (nothing);\n").Migrate(t.Context()); err == nil {
			t.Fatal("a broken statement was run")
		}
		if err := table(create).Migrate(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestManyMayMigrateAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, r room) {
		var all sync.WaitGroup
		for range 8 {
			for name, build := range sdkTables {
				if name == "outbox" && r.dialect == sqldb.SQLite {
					continue
				}
				table := build(t, r.db, r.dialect)
				all.Go(func() {
					if err := table.Migrate(t.Context()); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
		}
		all.Wait()
	})
}

// Replicas start together on a new database. All of them must learn one identity, or each leaves the other's messages
// alone.
func TestManyMarkersHaveOneIdentity(t *testing.T) {
	onEach(t, func(t *testing.T, r room) {
		for round := range 8 {
			var all sync.WaitGroup
			identities := make([]string, 8)
			for i := range identities {
				markers := must[*sqlmarker.Store](t)(sqlmarker.New(sqlmarker.Config{
					DB: r.db, Dialect: r.dialect, Producer: "ours", Table: fmt.Sprint("markers", round),
				}))
				all.Go(func() {
					err := markers.Migrate(t.Context())
					if err == nil {
						identities[i], err = markers.Identity(t.Context())
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if slices.Sort(identities); identities[0] == "" || len(slices.Compact(identities)) != 1 {
				t.Errorf("round %d: %q", round, identities)
			}
		}
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
		t.Fatalf("two hours later the clock says %s: the server has no summer time", local)
	}
}

// The names of constraints and indexes begin with that of the table, and databases refuse long ones, or cut them.
func TestLongestTableNameIsMigrated(t *testing.T) {
	onEach(t, func(t *testing.T, r room) {
		name := func(letter string) string { return strings.Repeat(letter, 48) }
		tables := []migrator{
			must[*sqlmarker.Store](t)(sqlmarker.New(sqlmarker.Config{
				DB: r.db, Dialect: r.dialect, Producer: "ours", Table: name("m"),
			})),
			must[*sqlinbox.Inbox](t)(sqlinbox.New(sqlinbox.Config{
				DB: r.db, Dialect: r.dialect, Consumer: "ours", Table: name("i"),
			})),
			must[*shards.Leases](t)(shards.NewLeases(shards.LeasesConfig{
				DB: r.db, Dialect: r.dialect, Producer: "ours", Table: name("l"),
			})),
		}
		if r.dialect != sqldb.SQLite {
			tables = append(tables, must[*sqlmarker.Outbox](t)(sqlmarker.NewOutbox(sqlmarker.OutboxConfig{
				DB: r.db, Dialect: r.dialect, Producer: "ours", Table: name("o"),
			})))
		}
		for _, table := range tables {
			if err := table.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
