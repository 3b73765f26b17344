// Package sql_test tests producer/marker/sql on PostgreSQL, MariaDB and SQLite.
package sql_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/markertest"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// database is a database under test.
type database struct {
	dialect sqlmarker.Dialect
	driver  string
	dsn     string
}

// onEach runs a test on an empty database of each kind.
func onEach(t *testing.T, test func(t *testing.T, d database)) {
	t.Helper()
	for dialect, open := range map[sqlmarker.Dialect]func(t *testing.T) database{
		sqlmarker.PostgreSQL: func(t *testing.T) database {
			d := servers.PostgreSQL(t)
			return database{sqlmarker.PostgreSQL, d.Driver, d.DSN}
		},
		sqlmarker.MySQL: func(t *testing.T) database {
			d := servers.MariaDB(t)
			return database{sqlmarker.MySQL, d.Driver, d.DSN}
		},
		sqlmarker.SQLite: func(t *testing.T) database {
			return database{sqlmarker.SQLite, "sqlite", sqliteDSN(filepath.Join(t.TempDir(), "business.db"))}
		},
	} {
		t.Run(dialect.String(), func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func sqliteDSN(path string) string {
	return "file:" + path + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
}

// open connects to the database until the test ends.
func (d database) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// store is a migrated store; change may be nil.
func (d database) store(t testing.TB, db *sql.DB, change func(*sqlmarker.Config)) *sqlmarker.Store {
	t.Helper()
	config := sqlmarker.Config{DB: db, Dialect: d.dialect, Producer: "orders"}
	if change != nil {
		change(&config)
	}
	s, err := sqlmarker.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// producerOf names a producer for each test, within the length of a producer's name.
func producerOf(t *testing.T) string {
	sum := sha256.Sum256([]byte(t.Name()))
	return hex.EncodeToString(sum[:8])
}

func TestConformance(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		markertest.Run(t, func(t *testing.T) marker.Store {
			return d.store(t, d.open(t), func(c *sqlmarker.Config) { c.Producer = producerOf(t) })
		})
	})
}
