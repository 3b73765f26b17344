package sqloutbox

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/msghandler/msghandler/internal/ground/address"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

// database is a database with an outbox.
type database struct {
	*sql.DB
	dialect sqlmarker.Dialect
	// listen is how notifications are received now; nil where the database has none.
	listen func() (*pgx.ConnConfig, error)
	// reach is how long connecting may take, with all hosts of the DSN.
	reach time.Duration
}

// target is where a DSN leads.
type target struct {
	driver.Connector
	server string
	reach  time.Duration
}

// Handshakes gets the state of TLS of each connection to a database; nil is none. It must not block.
type Handshakes func(server string, state tls.ConnectionState, err error)

// watch reports the connections of a configuration; nil is one without TLS.
func (h Handshakes) watch(server string, config *tls.Config) {
	if h == nil || config == nil {
		return
	}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		h(server, state, nil)
		return nil
	}
}

// connector opens each connection with the DSN of then, as a password may have been rotated, and reports the errors
// with which none came about.
type connector struct {
	// Connector is that of the start.
	driver.Connector
	present func() string
	parse   func(dsn string, seen Handshakes) (target, error)
	seen    Handshakes
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	to, err := c.parse(c.present(), c.seen)
	if err != nil {
		return nil, err
	}
	conn, err := to.Connect(ctx)
	if err != nil && c.seen != nil {
		c.seen(to.server, tls.ConnectionState{}, err)
	}
	return conn, err
}

// dialTimeout bounds connecting, where the DSN sets no time: a server on the same network answers faster or is away.
const dialTimeout = 3 * time.Second

// idleTime is how long an unused connection is kept.
const idleTime = 5 * time.Minute

// lifeTime is how long a connection is used: the next one sees a new address and a new certificate of the server.
const lifeTime = time.Hour

// openDatabase reads the DSN of now, and connects at the first statement. Errors quote nothing of the DSN: a part of a
// malformed DSN may be a piece of a password.
func openDatabase(present func() string, seen Handshakes) (*database, error) {
	where, err := address.ParseSQL(present())
	if err != nil {
		return nil, err
	}
	d, parse := &database{dialect: sqlmarker.MySQL}, parseMySQL
	if where.PostgreSQL {
		d.dialect, parse = sqlmarker.PostgreSQL, parsePostgreSQL
		d.listen = func() (*pgx.ConnConfig, error) { return configPostgreSQL(present(), seen) }
	}
	to, err := parse(present(), seen)
	if err != nil {
		return nil, err
	}
	d.reach = to.reach
	d.DB = sql.OpenDB(connector{to.Connector, present, parse, seen})
	d.SetConnMaxIdleTime(idleTime)
	d.SetConnMaxLifetime(lifeTime)
	return d, nil
}

// limit bounds the connections.
func (d *database) limit(connections int) {
	d.SetMaxOpenConns(connections)
	d.SetMaxIdleConns(connections)
}

// parsePostgreSQL reads a DSN. The driver tries one host after the other, where the DSN allows it with and without TLS.
func parsePostgreSQL(dsn string, seen Handshakes) (target, error) {
	c, err := configPostgreSQL(dsn, seen)
	if err != nil {
		return target{}, err
	}
	return target{stdlib.GetConnector(*c), c.Host, time.Duration(1+len(c.Fallbacks)) * c.ConnectTimeout}, nil
}

func configPostgreSQL(dsn string, seen Handshakes) (*pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig(dsn)
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return nil, fmt.Errorf("names a file that cannot be read: %w", file)
	}
	if err != nil {
		return nil, errors.New("has options that the driver does not take; see the parameters of libpq's connection URIs")
	}
	seen.watch(c.Host, c.TLSConfig)
	for _, other := range c.Fallbacks {
		seen.watch(other.Host, other.TLSConfig)
	}
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, dialTimeout)
	// A pooler in transaction mode gives each transaction another session, which lacks the driver's prepared statements,
	// or has those of another client.
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	return c, nil
}

func parseMySQL(dsn string, seen Handshakes) (target, error) {
	where, err := address.ParseSQL(dsn)
	if err != nil {
		return target{}, err
	}
	c, err := mysql.ParseDSN("tcp(" + where.Host + ")/?" + where.URL.Query().Encode())
	if err != nil {
		return target{}, errors.New("has options that the driver does not take; see the parameters of go-sql-driver/mysql")
	}
	c.DBName = where.Database
	c.User = where.URL.User.Username()
	c.Passwd, _ = where.URL.User.Password()
	seen.watch(where.Host, c.TLS)
	c.Timeout = cmp.Or(c.Timeout, dialTimeout)
	c.Logger = &mysql.NopLogger{} // its lines have no form; the errors come back as well
	opens, err := mysql.NewConnector(c)
	if err != nil {
		return target{}, errors.New("has options that the driver does not take together")
	}
	return target{opens, where.Host, c.Timeout}, nil
}

// open opens the database of an outbox. Without a name the DSN is that of a flag.
func open(name string, present func() string, seen Handshakes) (*database, error) {
	d, err := openDatabase(present, seen)
	if err != nil {
		return nil, fmt.Errorf("%s %w", source(name), err)
	}
	return d, nil
}

// source is the key or the flag that holds the DSN.
func source(name string) string {
	if name == "" {
		return "--dsn"
	}
	return "outbox." + name + ".dsn"
}
