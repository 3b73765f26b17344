// Package database opens the databases of the demos: a file of SQLite, or PostgreSQL, MySQL or MariaDB by its URL.
//
// It is what every service has of its own: a driver, a pool, and a few lines around database/sql. The SDKs bring none.
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
	// Dialect is what it speaks.
	Dialect sqlmarker.Dialect
}

// Help says how a database is named.
const Help = "sqlite:FILE, postgres://USER:PASSWORD@HOST/NAME or mariadb://USER:PASSWORD@HOST/NAME"

// errName does not repeat the name, as it may hold a password.
var errName = errors.New("a database is named " + Help)

// connections is how many a service has at most: few enough for several services on one server. With SQLite it has one.
// That has one writer at a time, and connections that wait for each other poll for their turn; a pool hands it on.
const connections = 16

// Open opens a database by its name, of which Help tells; parameters of the driver may follow a question mark. It
// connects with the first statement.
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

// mysqlDSN is a URL as the driver wants it; empty for one that cannot be read.
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

// TxOptions are those of the services' transactions. READ COMMITTED is enough, as they read nothing that they do not
// lock, and it is what keeps them out of each other's way.
func (d *DB) TxOptions() *sql.TxOptions {
	if d.Dialect == sqlmarker.SQLite {
		return nil // one writer at a time: it has nothing weaker
	}
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

// SQL completes a statement for this database: its parameters are ?, and {id} is the type of an id, which keeps `A` and
// `a` apart.
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

// Create runs statements that make tables.
func (d *DB) Create(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := d.ExecContext(ctx, d.SQL(statement)); err != nil {
			return fmt.Errorf("create tables: %w", err)
		}
	}
	return nil
}

// Write runs a statement in a transaction and says how many rows it changed.
func (d *DB) Write(ctx context.Context, tx *sql.Tx, statement string, args ...any) (changed int64, err error) {
	result, err := tx.ExecContext(ctx, d.SQL(statement), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// InTx runs work in a transaction and commits it, unless work fails.
func (d *DB) InTx(ctx context.Context, work func(tx *sql.Tx) error) error {
	tx, err := d.BeginTx(ctx, d.TxOptions())
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // deferred, for work that panics; after a commit it does nothing
	if err := work(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
