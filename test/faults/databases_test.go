package faults

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/msghandler/msghandler/internal/ground/sqldb"
	"github.com/msghandler/msghandler/test/servers"
)

// database is a business's own, opened by this process and by processes that this process starts.
type database struct {
	Dialect     sqldb.Dialect
	Driver, DSN string
}

// newSQLite is a file that is removed with the test.
func newSQLite(t *testing.T) database {
	t.Helper()
	return database{
		sqldb.SQLite, "sqlite", "file:" + filepath.Join(t.TempDir(), "business.db") +
			"?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)",
	}
}

// newPostgreSQL is a database of its own on the server that all rows share.
func newPostgreSQL(t *testing.T) database {
	t.Helper()
	d := servers.PostgreSQL(t)
	return database{sqldb.PostgreSQL, d.Driver, d.DSN}
}

// The businesses' tables. The second table does not forbid that a message has its effect twice.
const (
	orderTable  = `CREATE TABLE IF NOT EXISTS orders (id TEXT NOT NULL PRIMARY KEY)`
	effectTable = `CREATE TABLE IF NOT EXISTS effects (message TEXT NOT NULL)`
)

// connections are enough for the load, and leave some of the server's to others.
const connections = 20

// open opens the database, and makes a table.
func (d database) open(ctx context.Context, table string) (*sql.DB, error) {
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	if _, err := db.ExecContext(ctx, table); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// opened opens the database until the test ends.
func (d database) opened(t *testing.T, table string) *sql.DB {
	t.Helper()
	db, err := d.open(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// oneWriter says that a slow transaction holds all others up.
func (d database) oneWriter() bool { return d.Dialect.Traits().OneWriter }

// says is a statement with one parameter in the dialect of the database.
func (d database) says(statement string) string {
	if d.Dialect.Traits().Dollars {
		return strings.Replace(statement, "?", "$1", 1)
	}
	return statement
}

const (
	insertOrder  = `INSERT INTO orders (id) VALUES (?)`
	insertEffect = `INSERT INTO effects (message) VALUES (?)`
)

// counts reads names, and how often there is each.
func counts(ctx context.Context, db *sql.DB, query string, args ...any) (map[string]int, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := map[string]int{}
	for rows.Next() {
		var name []byte
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			return nil, err
		}
		found[string(name)] = n
	}
	return found, rows.Err()
}

// orders are the committed orders.
func orders(ctx context.Context, db *sql.DB) (map[string]int, error) {
	return counts(ctx, db, `SELECT id, 1 FROM orders`)
}
