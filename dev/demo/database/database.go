// Package database opens the databases of the demos: a file of SQLite, or PostgreSQL, MySQL or MariaDB by its URL.
//
// Every service has this much code of its own: a driver, a pool, and a few lines around database/sql. The SDKs bring
// none.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

// DB is a database of a service.
type DB struct {
	*sql.DB
	// Dialect is the SQL dialect of the database.
	Dialect sqlmarker.Dialect
}

// Help says how a database is named.
//
//nolint:gosec // placeholders
const Help = "sqlite:FILE, postgres://USER:PASSWORD@HOST/NAME or mariadb://USER:PASSWORD@HOST/NAME"

// errName does not repeat the name, which may hold a password.
var errName = errors.New("a database is named " + Help)

// connections is the size of a service's pool: few enough for several services on one server. SQLite has one writer at
// a time and makes other connections poll, so its pool has one connection.
const connections = 16

// Open opens a database by its name, as in Help; parameters of the driver may follow a question mark. The first
// statement connects.
func Open(name string) (*DB, error) {
	scheme, rest, _ := strings.Cut(name, ":")
	dialect, driver, dsn := sqlmarker.Dialect(0), "", ""
	switch scheme {
	case "sqlite":
		dialect, driver = sqlmarker.SQLite, "sqlite"
		file, more, _ := strings.Cut(rest, "?")
		dsn = "file:" + url.PathEscape(file) + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&" + more
	case "postgres", "postgresql":
		dialect, driver, dsn = sqlmarker.PostgreSQL, "pgx", name
	case "mysql", "mariadb":
		dialect, driver, dsn = sqlmarker.MySQL, "mysql", mysqlDSN(name)
	}
	if dsn == "" || rest == "" {
		return nil, errName
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, errName
	}
	most := connections
	if dialect == sqlmarker.SQLite {
		most = 1
	}
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return &DB{DB: db, Dialect: dialect}, nil
}

// mysqlDSN converts a URL to the driver's format; empty for a malformed URL.
func mysqlDSN(name string) string {
	u, err := url.Parse(name)
	if err != nil || u.Host == "" {
		return ""
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	if u.Port() == "" {
		c.Addr += ":3306"
	}
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	if u.RawQuery != "" {
		return c.FormatDSN() + "?" + u.RawQuery
	}
	return c.FormatDSN()
}

// TxOptions are the options of the services' transactions. READ COMMITTED is enough, because the services lock every
// row they read within a transaction, and avoids needless conflicts.
func (d *DB) TxOptions() *sql.TxOptions {
	if d.Dialect == sqlmarker.SQLite {
		return nil // SQLite has one writer at a time and no weaker level
	}
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

// Locked ends a SELECT of rows that nothing may change before the transaction ends.
func (d *DB) Locked() string {
	if d.Dialect == sqlmarker.SQLite {
		return "" // its transactions of the services write, and SQLite has one writer at a time
	}
	return " FOR UPDATE"
}

// SQL completes a statement for this database: parameters are ?, and {id} is the type of an id, a type that
// distinguishes `A` and `a`.
func (d *DB) SQL(statement string) string {
	id := "VARCHAR(128)"
	if d.Dialect == sqlmarker.MySQL {
		id += " CHARACTER SET ascii COLLATE ascii_bin"
	}
	statement = strings.ReplaceAll(statement, "{id}", id)
	if d.Dialect != sqlmarker.PostgreSQL {
		return statement
	}
	parts := strings.Split(statement, "?")
	var b strings.Builder
	for i, part := range parts[:len(parts)-1] {
		b.WriteString(part + "$" + strconv.Itoa(i+1))
	}
	return b.String() + parts[len(parts)-1]
}

// Create runs the statements that make tables.
func (d *DB) Create(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := d.ExecContext(ctx, d.SQL(statement)); err != nil {
			return fmt.Errorf("create tables: %w", err)
		}
	}
	return nil
}

// Write runs a statement in a transaction and returns the number of changed rows.
func (d *DB) Write(ctx context.Context, tx *sql.Tx, statement string, args ...any) (changed int64, err error) {
	result, err := tx.ExecContext(ctx, d.SQL(statement), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// InTx runs work in a transaction and commits, unless work fails.
func (d *DB) InTx(ctx context.Context, work func(tx *sql.Tx) error) error {
	tx, err := d.BeginTx(ctx, d.TxOptions())
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // deferred, for work that panics; without effect after a commit
	if err := work(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
