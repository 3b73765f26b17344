package sql

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"time"

	"github.com/msghandler/msghandler/internal/ground/sqldb"
	"github.com/msghandler/msghandler/producer"
)

// DefaultOutboxTable is the name of the table of an Outbox.
const DefaultOutboxTable = "msghandler_outbox"

//go:embed plain/ddl
var plain embed.FS

// OutboxConfig configures an Outbox. DB, Dialect and Producer must be given.
type OutboxConfig struct {
	// DB is the database of the business, on its primary; the caller closes DB.
	DB *sql.DB
	// Dialect is the kind of database of DB: PostgreSQL or MySQL.
	Dialect Dialect
	// Producer is whose messages are relayed: the column producer. Letters, digits and ._-, as coordinators take them.
	Producer string
	// Table is the table's name, optionally with a schema. Default: DefaultOutboxTable.
	Table string
	// Shards is the number of shards that the writers of messages use. Default: 1.
	Shards int
	// Retention is how long a sent message is kept. Default: DefaultRetention.
	Retention time.Duration
	// MaxBody is the longest body in bytes. Load reads no longer body, so that a few rows cannot fill the memory; such
	// a message is Unreadable. Default: no limit.
	MaxBody int
	// Logger gets warnings. Default: slog.Default().
	Logger *slog.Logger
}

// Outbox is the published table for messages of plain SQL: one INSERT in any language is a message, without this SDK
// and without a call before the commit. An Outbox is a table for a relay of package outbox, and several relays may
// share the table. The coordinator relays such tables too, by its configuration outbox.NAME.dsn.
type Outbox struct{ store *Store }

// NewOutbox returns an Outbox, or an error for a configuration that cannot work. NewOutbox makes no call to the
// database.
func NewOutbox(config OutboxConfig) (*Outbox, error) {
	config.Table = either(config.Table, DefaultOutboxTable)
	table, err := outboxTable(config.DB, config.Dialect, config.Producer, config.Table)
	if err != nil {
		return nil, err
	}
	store, err := New(Config{
		DB: config.DB, Dialect: config.Dialect, Producer: config.Producer, Table: config.Table, Shards: config.Shards,
		Retention: config.Retention, Logger: config.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	store.table, store.form = table, ofPlainSQL(config.Dialect, config.MaxBody)
	return &Outbox{store}, nil
}

// OutboxDDL returns the statements that create the table of an Outbox, for deployments that create tables themselves.
// Rows whose INSERT names no producer are messages of this producer. An empty table is DefaultOutboxTable.
func OutboxDDL(dialect Dialect, producer, table string) ([]string, error) {
	t, err := outboxTable(nil, dialect, producer, either(table, DefaultOutboxTable))
	if err != nil {
		return nil, err
	}
	return t.DDL()
}

var producerName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

// outboxTable describes the table. The name of the producer is a default of the DDL.
func outboxTable(db *sql.DB, dialect Dialect, producer, table string) (*sqldb.Table, error) {
	switch {
	case dialect != PostgreSQL && dialect != MySQL:
		return nil, errors.New("outbox: Dialect: give PostgreSQL or MySQL")
	case !producerName.MatchString(producer):
		return nil, fmt.Errorf("outbox: Producer: %q names no producer; give 1 to 100 of A-Z a-z 0-9 . _ -", producer)
	}
	if err := sqldb.CheckName(dialect, table); err != nil {
		return nil, fmt.Errorf("outbox: Table: %w", err)
	}
	ddl, err := fs.Sub(plain, "plain")
	if err != nil {
		return nil, err
	}
	return sqldb.NewTable(db, dialect, table, ddl,
		append(words(dialect), "{producer}", "'"+producer+"'", "{now_default}", clockDefault[dialect])...), nil
}

// clockDefault is the database's clock as the default of a column.
var clockDefault = map[Dialect]string{
	PostgreSQL: "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::BIGINT",
	MySQL:      MySQL.Traits().Now,
}

// Migrate creates the table with its indexes, and on PostgreSQL the trigger that wakes relays. Migrate may be called by
// several processes at once; a table that is there is not changed. Migrate fails for a table that lacks a column or its
// primary key. A PostgreSQL database of the encoding SQL_ASCII is refused: such a database checks no text, and a text
// that is not UTF-8 would fail each claim.
func (o *Outbox) Migrate(ctx context.Context) error {
	if o.store.table.Dollars {
		var encoding string
		if err := o.store.db.QueryRowContext(ctx, "SELECT getdatabaseencoding()").Scan(&encoding); err != nil {
			return fmt.Errorf("migrate %s: %w", o.store.config.Table, err)
		}
		if encoding == "SQL_ASCII" {
			return fmt.Errorf("migrate %s: the encoding of the database is SQL_ASCII, which checks no text; "+
				"create the table in a database of the encoding UTF8", o.store.config.Table)
		}
	}
	return o.store.table.Migrate(ctx)
}

// Claim implements outbox.Table: messages of one broker; see Store.Claim.
func (o *Outbox) Claim(ctx context.Context, request ClaimRequest) (Claim, error) {
	return o.store.Claim(ctx, request)
}

// Load implements outbox.Table; see Store.Load.
func (o *Outbox) Load(ctx context.Context, token string, claimed []Claimed) ([]Queued, error) {
	return o.store.Load(ctx, token, claimed)
}

// Release implements outbox.Table; see Store.Release.
func (o *Outbox) Release(ctx context.Context, token string, outcomes []Outcome) (held int64, err error) {
	return o.store.Release(ctx, token, outcomes)
}

// Purge removes messages that were sent longer than Retention ago, and returns their number.
func (o *Outbox) Purge(ctx context.Context) (removed int64, err error) { return o.store.Purge(ctx) }

// Backlog counts unsent messages. Sent messages cost nothing.
func (o *Outbox) Backlog(ctx context.Context) (Backlog, error) { return o.store.Backlog(ctx) }

// Queued implements outbox.Table: a value comes after Wake.
func (o *Outbox) Queued() <-chan struct{} { return o.store.Queued() }

// Wake lets a relay of this process look at the table at once.
func (o *Outbox) Wake() { o.store.Wake() }

// Failures lists messages that were refused up to the limit, in the order of their ids.
func (o *Outbox) Failures(ctx context.Context, limit int) ([]Failure, error) {
	return o.store.Failures(ctx, limit)
}

// Refused lists messages that were refused, and are sent again, in the order of their ids. Refused looks at the oldest
// waiting messages only.
func (o *Outbox) Refused(ctx context.Context, oldest, limit int) ([]Failure, error) {
	return o.store.refused(ctx, oldest, limit)
}

// Retry resets failed messages: they are sent again with all attempts. Retry returns their number.
func (o *Outbox) Retry(ctx context.Context, ids ...string) (retried int64, err error) {
	return o.store.Retry(ctx, ids...)
}

// ofPlainSQL is the form of the table of an Outbox.
func ofPlainSQL(dialect Dialect, maxBody int) form {
	length, body := "COALESCE(OCTET_LENGTH(body), 0)", "body"
	if dialect == PostgreSQL {
		length = "COALESCE(OCTET_LENGTH(body_bytes), OCTET_LENGTH(body), 0)"
		body = "COALESCE(body_bytes, convert_to(body, 'UTF8'))"
	}
	loaded := length
	if maxBody > 0 {
		body = fmt.Sprintf("CASE WHEN %s <= %d THEN %s END", length, maxBody, body)
		loaded = fmt.Sprintf("CASE WHEN %[1]s <= %[2]d THEN %[1]s ELSE 0 END", length, maxBody)
	}
	return form{
		key: func(id string) any { return id },
		columns: "exchange, routing_key, " + body + ", " + length + ", COALESCE(content_type, ''), " +
			"COALESCE(headers, ''), broker, delay_ms",
		content:  func() content { return &plainRow{maxBody: maxBody} },
		bytes:    loaded + " + COALESCE(OCTET_LENGTH(headers), 0)",
		ofBroker: " AND broker = ?",
	}
}

// plainRow is the content of a message that an INSERT of a user wrote.
type plainRow struct {
	message producer.Message
	headers string
	delayMS int64
	// length is that of the body in bytes; maxBody is the longest that is read, or 0.
	length, maxBody int
}

func (r *plainRow) fields() []any {
	m := &r.message
	return []any{&m.Exchange, &m.RoutingKey, &m.Body, &r.length, &m.ContentType, &r.headers, &m.Broker, &r.delayMS}
}

// maxDelayMS is a delay whose time.Duration does not overflow; coordinators take far less.
const maxDelayMS = int64(365 * 24 * time.Hour / time.Millisecond)

// unpack implements content. Errors quote no value: headers may hold a secret.
func (r *plainRow) unpack(id string) (producer.Message, error) {
	r.message.ID = id
	if r.maxBody > 0 && r.length > r.maxBody {
		return r.message, fmt.Errorf("body is %d bytes long, more than %d", r.length, r.maxBody)
	}
	if r.delayMS < 0 || r.delayMS > maxDelayMS {
		return r.message, fmt.Errorf("delay_ms is %d; give 0 to %d", r.delayMS, maxDelayMS)
	}
	r.message.Delay = time.Duration(r.delayMS) * time.Millisecond
	if r.headers == "" {
		return r.message, nil
	}
	if err := json.Unmarshal([]byte(r.headers), &r.message.Headers); err != nil {
		return r.message, fmt.Errorf(`headers is no JSON object of texts, such as {"tenant": "7"}: %w`, err)
	}
	return r.message, nil
}
