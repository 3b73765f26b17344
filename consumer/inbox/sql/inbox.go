package sql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/event"
	"github.com/msghandler/msghandler/internal/ground/sqldb"
)

// Defaults of Config.
const (
	DefaultTable     = "msghandler_inbox"
	DefaultRetention = 30 * 24 * time.Hour
)

// maxKey is how long a Message.Key may be, in bytes: AMQP has no longer producers and ids.
const maxKey = 255 + 1 + 255

// ErrNoID is the error for a message without an id. Copies of such a message cannot be recognized, so the
// message is rejected.
var ErrNoID = errors.New("the message has no id that fits the inbox")

//go:embed ddl
var ddl embed.FS

// Dialect is the kind of database of an inbox.
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
	// DB is the database of the effect; the caller closes DB.
	DB *sql.DB
	// Dialect is the kind of database of DB.
	Dialect Dialect
	// Consumer is the consumer's name, the same for all its instances: two services that get the same message must both
	// handle the message, also with a shared database.
	Consumer string
	// Table is the table's name, optionally with a schema, except on SQLite. Default: DefaultTable.
	Table string
	// Retention is how long a message is remembered. Default: DefaultRetention.
	Retention time.Duration
	// NoPurge leaves all rows to Inbox.Purge. Default: Handler removes some of the rows that are older than Retention,
	// after the commit of a message.
	NoPurge bool
	// TxOptions are the options of the transactions that Handler begins. Nil: the driver's own.
	TxOptions *sql.TxOptions
	// EventType names a message's event, for the column event_type. Default: read from a body in the form of package
	// envelope, or of a CloudEvent.
	EventType func(*consumer.Message) string
	// Logger gets a warning, at most one a minute, while old rows cannot be removed. Default: slog.Default().
	Logger *slog.Logger
}

// eventType is the default of Config.EventType.
func eventType(m *consumer.Message) string { return event.Of(m.ContentType, m.Body).Type }

// Inbox remembers in a database which messages had their effect. An Inbox is safe for concurrent use.
type Inbox struct {
	config Config
	table  *sqldb.Table
}

// New returns an inbox, or an error for a configuration that cannot work. New makes no call to the database, and so
// succeeds while the database is unreachable.
func New(config Config) (*Inbox, error) {
	if config.Table == "" {
		config.Table = DefaultTable
	}
	if config.Retention == 0 {
		config.Retention = DefaultRetention
	}
	if config.EventType == nil {
		config.EventType = eventType
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
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

// DDL returns the statements by which Migrate creates the table, for deployments that create tables themselves.
func (i *Inbox) DDL() ([]string, error) { return i.table.DDL() }

// Migrate creates the table with its index. Call Migrate at every start, also from several processes at once; a table
// that is there is not changed. Migrate fails for a table that lacks a column or its primary key.
func (i *Inbox) Migrate(ctx context.Context) error { return i.table.Migrate(ctx) }

// Effect is the effect of a message. All its statements go through tx; Effect neither commits nor rolls tx back.
type Effect func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error

// Handler turns an effect into the handler for Run of a consumer. A message that had its effect before is
// [consumer.ErrDuplicate], and a message without an id is rejected. A lost answer to COMMIT is an ordinary error:
// the message is redelivered, and the inbox finds the row. An effect returns each error of the database, and runs no
// DDL: after a deadlock MySQL has rolled the whole transaction back, and DDL commits it. Handler fails if the effect
// goes on. Trouble of the database is not the message's fault: a conflict with other transactions is repeated at
// once, a few times. An unreachable or full database, an inbox that does not take its row, and a statement that was
// prepared before its table has changed are [consumer.Transient]. An unreachable service beside the database is not,
// unless the effect says so.
func (i *Inbox) Handler(effect Effect) consumer.Handler {
	handler := i.resilient(i.inTransaction(effect))
	if i.config.NoPurge {
		return handler
	}
	return consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
		if err := handler.Handle(ctx, m); err != nil {
			return err
		}
		if err := i.table.TidyAfter(ctx, 1, i.oldRows()); err != nil {
			i.config.Logger.WarnContext(ctx, "old rows of the inbox not removed; a later message tries again",
				"consumer", i.config.Consumer, "cause", err)
		}
		return nil
	})
}

// inTransaction has the effect and the row of a message in one transaction.
func (i *Inbox) inTransaction(effect Effect) func(ctx context.Context, m *consumer.Message) error {
	return func(ctx context.Context, m *consumer.Message) (err error) {
		tx, err := i.table.Begin(ctx, i.config.TxOptions)
		if err != nil {
			return consumer.Transient(fmt.Errorf("begin the transaction: %w", err))
		}
		defer func() {
			_ = tx.Rollback() // deferred, for an effect that panics; does nothing after a commit
			i.table.LeaveReadOnly(ctx, err)
		}()
		if err := i.Take(ctx, tx.Tx, m); err != nil {
			return err
		}
		if err := effect(ctx, tx.Tx, m); err != nil {
			return i.ofEffect(ctx, tx.Tx, err)
		}
		if err := tx.StillOpen(ctx); err != nil {
			return fmt.Errorf("look at the transaction: %w", err)
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("commit the transaction: %w", err)
		}
		return nil
	}
}

// Take leaves the row of a message in a transaction. Call Take before anything else that the transaction writes;
// after an error roll the transaction back and return the error from the handler. The error is
// [consumer.ErrDuplicate] if the message had its effect before. Take waits for a transaction that holds the row of
// another copy.
func (i *Inbox) Take(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
	key := m.Key()
	if key == "" || len(key) > maxKey {
		return consumer.Reject(ErrNoID)
	}
	taken, err := i.table.InsertNew(ctx, tx, `INSERT INTO {table} (consumer, message, routing_key, event_type, created_at)
		VALUES (?, ?, ?, ?, {now})`,
		i.config.Consumer, []byte(key), event.Column(m.RoutingKey), event.Column(i.config.EventType(m)))
	switch {
	case err != nil && i.table.Missing(err):
		return consumer.Transient(fmt.Errorf("write the inbox: %w; call Migrate", err))
	case err != nil && ctx.Err() == nil && !i.table.Busy(err) && !i.table.Unfit(err): // no fault of the message
		return consumer.Transient(fmt.Errorf("write the inbox: %w", i.table.Advise(err)))
	case err != nil:
		return fmt.Errorf("write the inbox: %w", err)
	case !taken:
		return consumer.ErrDuplicate
	}
	return nil
}

// oldRows are the rows that a purge removes.
func (i *Inbox) oldRows() sqldb.OldRows {
	return sqldb.OldRows{
		Where: "consumer = ? AND created_at < {now} - ?",
		Age:   "created_at", Index: "created", Key: "consumer, message",
		Args: []any{i.config.Consumer, i.config.Retention.Milliseconds()},
	}
}

// Purge removes rows older than Retention, in slices with a transaction each, and returns the number of removed rows.
// Handler does so too, in small numbers: call Purge every hour where transactions of your own call Take.
func (i *Inbox) Purge(ctx context.Context) (removed int64, err error) {
	removed, err = i.table.Purge(ctx, i.oldRows())
	if err != nil {
		return removed, fmt.Errorf("purge the inbox: %w", err)
	}
	return removed, nil
}
