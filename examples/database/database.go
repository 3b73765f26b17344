// Package database opens the database of a service by its URL: PostgreSQL, MariaDB, MySQL or SQLite.
package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

// Help says how a database is named.
const Help = "sqlite:FILE, postgres://USER:PASSWORD@HOST/NAME or mariadb://USER:PASSWORD@HOST/NAME"

// ErrURL does not repeat the URL, which may hold a password.
var ErrURL = errors.New("a database is " + Help)

// DB is a database with its dialect.
type DB struct {
	*sql.DB
	Dialect sqlmarker.Dialect
}

// Open opens a database, and connects.
func Open(ctx context.Context, name string) (*DB, error) {
	driver, dsn, dialect, err := parse(name)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, ErrURL
	}
	connections := 16
	if dialect == sqlmarker.SQLite {
		connections = 1 // one writer at a time: a pool hands the turn on, while connections would poll for it
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxLifetime(time.Hour)
	if err := connect(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &DB{DB: db, Dialect: dialect}, nil
}

// connect makes the first connection. Where two processes open a new file of SQLite at once, both switch the file to
// WAL; SQLite refuses one of them without a wait, so that one tries again.
func connect(ctx context.Context, db *sql.DB) error {
	for tries := 20; ; tries-- {
		err := db.PingContext(ctx)
		if err == nil || tries == 0 || !strings.Contains(err.Error(), "SQLITE_BUSY") {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func parse(name string) (driver, dsn string, dialect sqlmarker.Dialect, err error) {
	u, err := url.Parse(name)
	if err != nil {
		return "", "", 0, ErrURL
	}
	switch {
	case u.Scheme == "sqlite" && u.Opaque+u.Path != "" && u.RawQuery == "":
		file := "file:" + url.PathEscape(u.Opaque+u.Path)
		return "sqlite", file + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)", sqlmarker.SQLite, nil
	case (u.Scheme == "postgres" || u.Scheme == "postgresql") && u.Host != "":
		return "pgx", name, sqlmarker.PostgreSQL, nil
	case (u.Scheme == "mariadb" || u.Scheme == "mysql") && u.Host != "":
		address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
		config, err := mysql.ParseDSN("tcp(" + address + ")/?" + u.RawQuery) // the query is the driver's, such as tls=true
		if err != nil {
			return "", "", 0, ErrURL
		}
		config.DBName, config.User = strings.TrimPrefix(u.Path, "/"), u.User.Username()
		config.Passwd, _ = u.User.Password()
		config.Timeout, config.ReadTimeout, config.WriteTimeout = 5*time.Second, time.Minute, time.Minute
		return "mysql", config.FormatDSN(), sqlmarker.MySQL, nil
	}
	return "", "", 0, ErrURL
}

// SQL puts a statement with the parameters ? into the words of the database.
func (db *DB) SQL(statement string) string {
	if db.Dialect != sqlmarker.PostgreSQL {
		return statement
	}
	parts := strings.Split(statement, "?")
	for i := range parts[1:] {
		parts[i] += "$" + strconv.Itoa(i+1)
	}
	return strings.Join(parts, "")
}

// Key is the type of a column of ids, which keeps A and a apart.
func (db *DB) Key() string {
	if db.Dialect == sqlmarker.MySQL {
		return "VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin"
	}
	return "VARCHAR(128)"
}

// TxOptions are the options of transactions: READ COMMITTED, where the database has levels.
func (db *DB) TxOptions() *sql.TxOptions {
	if db.Dialect == sqlmarker.SQLite {
		return nil
	}
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}
