package sql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/sqldb"
)

// Defaults of Config.
const (
	DefaultTable     = "msghandler_inbox"
	DefaultRetention = 30 * 24 * time.Hour
)

// maxKey is how long a Message.Key may be, in bytes: AMQP has no longer producers and ids.
const maxKey = 255 + 1 + 255

// ErrNoID says that a message has no id. It cannot be told from its copies, so it is rejected.
var ErrNoID = errors.New("the message has no id that fits the inbox")

//go:embed ddl
var ddl embed.FS

// Dialect is the database that an inbox speaks to.
type Dialect = sqldb.Dialect

// The dialects.
const (
	// PostgreSQL, through any driver.
	PostgreSQL = sqldb.PostgreSQL
	// MySQL and MariaDB, with InnoDB, through go-sql-driver/mysql.
	MySQL = sqldb.MySQL
	// SQLite, through modernc.org/sqlite or another.
	SQLite = sqldb.SQLite
)

// Config says where the inbox is. DB, Dialect and Consumer must be given.
type Config struct {
	// DB is the database of the effect; it stays the caller's to close.
	DB *sql.DB
	// Dialect is what DB speaks.
	Dialect Dialect
	// Consumer is the consumer's name, the same for all its instances: two services that both get a message both have to
	// handle it, also when they share a database.
	Consumer string
	// Table is the table's name, with its schema where it has one, which SQLite's must not. Default: DefaultTable.
	Table string
	// Retention is how long a message is remembered. Default: DefaultRetention.
	Retention time.Duration
	// TxOptions are those of the transactions that Handler begins. Nil: the driver's own.
	TxOptions *sql.TxOptions
}

// Inbox remembers in a database which messages had their effect. It is safe for concurrent use.
type Inbox struct {
	config Config
	table  *sqldb.Table
}

// New returns an inbox. It does not touch the database, so it works while that is away. It fails for a configuration
// that cannot work.
func New(config Config) (*Inbox, error) {
	if config.Table == "" {
		config.Table = DefaultTable
	}
	if config.Retention == 0 {
		config.Retention = DefaultRetention
	}
	badTable := sqldb.CheckName(config.Dialect, config.Table)
	switch {
	case config.DB == nil:
		return nil, errors.New("sql inbox: DB is missing; give the database of the effect")
	case config.Dialect.Traits() == nil:
		return nil, errors.New("sql inbox: Dialect is missing; give PostgreSQL, MySQL or SQLite")
	case config.Consumer == "":
		return nil, errors.New("sql inbox: Consumer is missing; give the name that all instances share")
	case len(config.Consumer) > 100:
		return nil, errors.New("sql inbox: Consumer is over 100 bytes")
	case badTable != nil:
		return nil, fmt.Errorf("sql inbox: Table: %w", badTable)
	case config.Retention < time.Second:
		return nil, fmt.Errorf("sql inbox: Retention of %v is too short", config.Retention)
	}
	return &Inbox{config: config, table: sqldb.NewTable(config.DB, config.Dialect, config.Table, ddl)}, nil
}

// DDL is what Migrate runs on a database that has nothing of it yet, for those who create tables themselves: the
// statements that make the table, and the note of its version.
func (i *Inbox) DDL() ([]string, error) { return i.table.DDL() }

// Migrate creates the table, or upgrades it to what this version of the SDK needs. It may be called at every start, by
// several processes at once, and changes nothing where nothing is to be done. It fails for a table that is newer than
// the SDK.
func (i *Inbox) Migrate(ctx context.Context) error { return i.table.Migrate(ctx) }

// Effect is what a message does. Everything goes through tx, which it neither commits nor rolls back.
type Effect func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error

// Handler makes of an effect what [consumer.Consumer.Run] takes. A message that had its effect before is
// [consumer.ErrDuplicate], and one without an id is rejected. An answer to COMMIT that was lost is an error like any
// other: the message comes again, and the inbox knows.
func (i *Inbox) Handler(effect Effect) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
		tx, err := i.config.DB.BeginTx(ctx, i.config.TxOptions)
		if err != nil {
			return fmt.Errorf("begin the transaction: %w", err)
		}
		defer func() { _ = tx.Rollback() }() // deferred, for an effect that panics; after a commit it does nothing
		if err := i.Take(ctx, tx, m); err != nil {
			return err
		}
		if err := effect(ctx, tx, m); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("commit the transaction: %w", err)
		}
		return nil
	})
}

// Take leaves the row of a message in a transaction. Call it before anything else that the transaction writes; after an
// error the transaction is to be rolled back, and the error is the handler's to return. It is [consumer.ErrDuplicate] when
// the message had its effect before. It waits for a transaction that has the row of another copy.
func (i *Inbox) Take(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
	key := m.Key()
	if key == "" || len(key) > maxKey {
		return consumer.Reject(ErrNoID)
	}
	taken, err := i.table.InsertNew(ctx, tx, `INSERT INTO {table} (consumer, message, created_at) VALUES (?, ?, {now})`,
		i.config.Consumer, []byte(key))
	switch {
	case err != nil:
		return fmt.Errorf("write the inbox: %w", err)
	case !taken:
		return consumer.ErrDuplicate
	}
	return nil
}

// Purge removes rows older than Retention, in slices with a transaction each, and returns how many it removed. Call it
// now and then, such as every hour.
func (i *Inbox) Purge(ctx context.Context) (removed int64, err error) {
	removed, err = i.table.Purge(ctx, "consumer = ? AND created_at < {now} - ?",
		i.config.Consumer, i.config.Retention.Milliseconds())
	if err != nil {
		return removed, fmt.Errorf("purge the inbox: %w", err)
	}
	return removed, nil
}
