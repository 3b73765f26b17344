package sql

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/ground/event"
	"github.com/msghandler/msghandler/internal/ground/sqldb"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
)

// Defaults of Config.
const (
	DefaultTable        = "msghandler_markers"
	DefaultRetention    = 7 * 24 * time.Hour
	DefaultLockTimeout  = time.Second
	DefaultBeginTimeout = 10 * time.Second
)

// maxID is how long an id may be, in bytes; the coordinator takes no more than 128.
const maxID = 255

// Config says where the markers are kept. DB, Dialect and Producer must be given.
type Config struct {
	// DB is the database of the business, on its primary; the caller closes DB.
	DB *sql.DB
	// Dialect is the kind of database of DB.
	Dialect Dialect
	// Producer is the producer's name. The name keeps the markers of several producers in one table apart.
	Producer string
	// Table is the table's name, optionally with a schema, except on SQLite. Default: DefaultTable.
	Table string
	// Retention is how long a marker is kept after DeleteBusiness. Default: DefaultRetention.
	Retention time.Duration
	// NoPurge leaves all rows to Store.Purge. Default: Delete, which the coordinator's DeleteBusiness calls, removes some
	// of the rows that are older than Retention.
	NoPurge bool
	// LockTimeout is how long a last question waits for the message's running transaction, on SQLite for any writing
	// transaction; then the answer is UNKNOWN, on SQLite UNAVAILABLE. LockTimeout must be below the coordinator's
	// confirm.timeout; MySQL knows whole seconds. Default: DefaultLockTimeout.
	LockTimeout time.Duration
	// BeginTimeout is how long Send, InTx and Commit retry the begin of the transaction after a transient error: a
	// lock, a deadlock, a serialization failure, a lost connection. No attempt begins after BeginTimeout; the last
	// attempt lasts as long as the database waits for its locks. The context ends all attempts. Default:
	// DefaultBeginTimeout.
	BeginTimeout time.Duration
	// Resend makes Send keep the message in the marker's row. A relay hands the message over once more when the
	// coordinator has not called DeleteBusiness within Resend: for a Redis that may lose acknowledged writes. 0: Send
	// keeps no message.
	Resend time.Duration
	// TxOptions are the options of the transactions that Send and Commit begin. Nil: the driver's own.
	TxOptions *sql.TxOptions
	// Shards is the number of shards of the table's messages. A message is in the shard of its aggregate id, or of its
	// own id when it has no aggregate. Raise the number at any time; a message stays in its shard. Default: 1.
	Shards int
	// ShardID is the number of the one shard that the table holds, for a table or a database of each shard. Not with
	// Shards.
	ShardID int
	// Describe names a message's event, for the columns event_type, aggregate_type and aggregate_id. Default: read from
	// a body in the form of package envelope, or of a CloudEvent.
	Describe func(producer.Message) Event
	// Logger gets a line "message enqueued" for each committed message at level Debug, and warnings. Default:
	// slog.Default().
	Logger *slog.Logger
}

// Event names a message's event and the object that it changed.
type Event = event.Event

// describe is the default of Config.Describe.
func describe(m producer.Message) Event { return event.Of(m.ContentType, m.Body) }

// Store is a marker.Store in a database. A Store is safe for concurrent use.
type Store struct {
	config Config
	db     *sql.DB
	table  *sqldb.Table
	form   form
	// queued holds one signal when messages may have been committed since the last read.
	queued chan struct{}
	scope  scope
	// bound is the identity that the markers must have; empty: any.
	bound      string
	identities *identities
	// turn counts claims. stray is where the next claim looks for shards beyond the configuration.
	turn  *atomic.Uint32
	stray *atomic.Int64
}

// New returns a store, or an error for a configuration that cannot work. New makes no call to the database, and so
// succeeds while the database is unreachable.
func New(config Config) (*Store, error) {
	missing := func(field, remedy string) error {
		return fmt.Errorf("sql markers: %s is missing; %s", field, remedy)
	}
	config.Table = either(config.Table, DefaultTable)
	config.Retention = either(config.Retention, DefaultRetention)
	config.LockTimeout = either(config.LockTimeout, DefaultLockTimeout)
	config.BeginTimeout = either(config.BeginTimeout, DefaultBeginTimeout)
	config.Shards = either(config.Shards, 1)
	config.Logger = either(config.Logger, slog.Default())
	if config.Describe == nil {
		config.Describe = describe
	}
	badTable := sqldb.CheckName(config.Dialect, config.Table)
	switch {
	case config.DB == nil:
		return nil, missing("DB", "give the database of the business")
	case config.Dialect.Traits() == nil:
		return nil, missing("Dialect", "give PostgreSQL, MySQL or SQLite")
	case config.Producer == "":
		return nil, missing("Producer", "give the name that producer.Config has")
	case len(config.Producer) > 100:
		return nil, fmt.Errorf("sql markers: Producer is over 100 bytes")
	case badTable != nil:
		return nil, fmt.Errorf("sql markers: Table: %w", badTable)
	case config.Shards < 1 || config.ShardID < 0 || config.Shards > 1 && config.ShardID > 0:
		return nil, fmt.Errorf("sql markers: Shards of %d with ShardID of %d: give the number of shards of one table, "+
			"or the number of the shard that the table holds", config.Shards, config.ShardID)
	case config.Retention < time.Second || config.LockTimeout < time.Millisecond || config.Resend < 0 ||
		config.BeginTimeout < 0:
		return nil, fmt.Errorf("sql markers: Retention of %v, LockTimeout of %v, BeginTimeout of %v or Resend of %v "+
			"is too short",
			config.Retention, config.LockTimeout, config.BeginTimeout, config.Resend)
	}
	return &Store{
		config: config, db: config.DB, queued: make(chan struct{}, 1),
		table: sqldb.NewTable(config.DB, config.Dialect, config.Table, ddl, words(config.Dialect)...), form: ofMarkers,
		scope: wholeTable(config), turn: &atomic.Uint32{}, stray: &atomic.Int64{},
		identities: &identities{},
	}, nil
}

// words are the words of statements, and their replacements.
func words(dialect Dialect) []string {
	return []string{
		"{none}", "0", "{waiting}", "1", "{handed}", "2", "{sent}", "3", "{failed}", "4",
		"{by_key}", map[Dialect]string{MySQL: " FORCE INDEX (PRIMARY)"}[dialect],
		"{octets}", either(map[Dialect]string{SQLite: "LENGTH"}[dialect], "OCTET_LENGTH"),
	}
}

func either[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// Capabilities implements marker.Store.
func (s *Store) Capabilities() marker.Capabilities {
	return marker.Capabilities{SurvivesRestart: true, Shared: true, DecidesFinal: true, InTransaction: true}
}

// Put implements marker.Store. An id that a running transaction holds for longer than LockTimeout is left out.
func (s *Store) Put(ctx context.Context, ids []string, v marker.Verdict) (map[string]marker.Verdict, error) {
	standing, _, err := s.put(ctx, ids, v)
	return standing, err
}

// put is Put, and also returns the ids that could not be read in time.
func (s *Store) put(ctx context.Context, ids []string, v marker.Verdict) (
	standing map[string]marker.Verdict, unread []string, err error,
) {
	standing, err = s.look(ctx, ids)
	if err != nil {
		return nil, nil, fmt.Errorf("read markers: %w", err)
	}
	missing := without(ids, standing)
	if len(missing) == 0 {
		return standing, nil, nil
	}
	if err := s.plant(ctx, missing, v); err != nil {
		return nil, nil, fmt.Errorf("write markers: %w", err)
	}
	// The answer is the committed row after the write, whichever transaction wrote the row.
	planted, err := s.look(ctx, missing)
	switch {
	case err != nil && ctx.Err() != nil && len(standing) > 0:
		return standing, missing, nil // ids with a verdict do not wait for held ids
	case err != nil:
		return nil, nil, fmt.Errorf("read markers: %w", err)
	}
	maps.Copy(standing, planted)
	return standing, nil, nil
}

// Lookup implements marker.Store. A final question plants a tombstone for each id without a marker. An id that cannot
// be decided in time is left out, or Unavailable if all writers wait for each other or the id could not be read in
// time.
func (s *Store) Lookup(ctx context.Context, ids []string, final bool) (map[string]marker.Verdict, error) {
	if final {
		standing, unread, err := s.put(ctx, ids, marker.RolledBack)
		for _, id := range unread {
			standing[id] = marker.Unavailable
		}
		return s.heldUp(ids, standing), err
	}
	found, err := s.look(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read markers: %w", err)
	}
	return found, nil
}

// heldUp adds an answer for ids that got no tombstone. In a database with one writer any transaction may be the
// reason, so the coordinator asks again at no cost; elsewhere the message's own transaction still runs.
func (s *Store) heldUp(ids []string, standing map[string]marker.Verdict) map[string]marker.Verdict {
	if s.table.OneWriter && standing != nil {
		for _, id := range without(ids, standing) {
			standing[id] = marker.Unavailable
		}
	}
	return standing
}

// Delete implements marker.Store. The marker stays until the purge, for a slow coordinator that asks again; the
// message in its row counts as sent.
func (s *Store) Delete(ctx context.Context, ids []string) error {
	for part := range slices.Chunk(usable(ids), maxInList) {
		list, args := s.inList(part)
		args = append([]any{s.config.Producer}, args...)
		bound := ""
		if s.bound != "" {
			bound, args = ` AND EXISTS (SELECT 1 FROM {table}_identity WHERE identity = ?)`, append(args, s.bound)
		}
		result, err := s.db.ExecContext(ctx, s.table.Query(`UPDATE {table}
			SET cleaned_at = {now}, due_at = NULL, `+unlocked+`, updated_at = {now},
			sent_at = CASE WHEN state = {none} THEN sent_at ELSE {now} END,
			state = CASE WHEN state = {none} THEN {none} ELSE {sent} END
			WHERE producer = ? AND cleaned_at IS NULL AND id IN (`+list+`)`+bound), args...)
		var cleaned int64
		if err == nil {
			cleaned, err = result.RowsAffected()
		}
		if err == nil && cleaned == 0 {
			err = s.checkBound(ctx, s.db)
		}
		if err != nil {
			s.table.LeaveReadOnly(ctx, err)
			return fmt.Errorf("clean markers: %w", err)
		}
	}
	if s.config.NoPurge {
		return nil
	}
	if err := s.table.TidyAfter(ctx, len(ids), s.oldRows()); err != nil {
		s.config.Logger.WarnContext(ctx, "old rows of the markers not removed; a later DeleteBusiness tries again",
			"producer", s.config.Producer, "cause", err)
	}
	return nil
}

// look reads committed markers.
func (s *Store) look(ctx context.Context, ids []string) (map[string]marker.Verdict, error) {
	found := make(map[string]marker.Verdict, len(ids))
	ids = usable(ids)
	if len(ids) == 0 {
		return found, ctx.Err()
	}
	from := sqldb.Execer(s.db)
	if s.table.LookInTx {
		tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: s.table.Level, ReadOnly: true})
		if err != nil {
			return nil, err
		}
		defer func() { _ = tx.Rollback() }() // nothing was written
		from = tx
	}
	for part := range slices.Chunk(ids, maxInList) {
		if err := s.lookIn(ctx, from, part, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (s *Store) lookIn(ctx context.Context, from sqldb.Execer, ids []string, found map[string]marker.Verdict) error {
	list, args := s.inList(ids)
	args = append([]any{s.config.Producer}, args...)
	query := `SELECT id, verdict FROM {table} WHERE producer = ? AND id IN (` + list + `)`
	if s.bound != "" { // in the same statement: two statements may be for two databases
		query += ` UNION ALL SELECT NULL, 0 FROM {table}_identity WHERE identity = ?`
		args = append(args, s.bound)
	}
	rows, err := from.QueryContext(ctx, s.table.Query(query), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	isBound := s.bound == ""
	for rows.Next() {
		var id []byte
		var verdict marker.Verdict
		if err := rows.Scan(&id, &verdict); err != nil {
			return err
		}
		isBound = isBound || id == nil
		if verdict.Definite() {
			found[string(id)] = verdict
		}
	}
	if err := rows.Err(); err != nil || isBound {
		return err
	}
	clear(found)
	return marker.ErrOtherStore
}

// plant writes missing markers. Ids that others hold for too long stay without a marker: plant tries all ids at once,
// and then, if the insert had to wait, each id by itself.
func (s *Store) plant(ctx context.Context, ids []string, v marker.Verdict) error {
	err := s.insert(ctx, ids, v)
	if s.table.Busy(err) && !s.table.OneWriter && len(ids) > 1 {
		return eachOf(ids, func(id string) error { return s.unlessHeld(ctx, s.insert(ctx, []string{id}, v)) })
	}
	return s.unlessHeld(ctx, err)
}

// unlessHeld drops the error of an insert that had to wait for others: ids without a marker then get no answer.
func (s *Store) unlessHeld(ctx context.Context, err error) error {
	if s.table.Busy(err) || ctx.Err() != nil {
		err = nil
	}
	return err
}

// insert writes markers in one transaction, in the order of their ids, so that two inserts do not deadlock.
func (s *Store) insert(ctx context.Context, ids []string, v marker.Verdict) error {
	ids = slices.Sorted(slices.Values(ids))
	return s.table.Write(ctx, s.config.LockTimeout, func(tx sqldb.Execer) error {
		for part := range slices.Chunk(ids, maxInList) {
			args := make([]any, 0, 3*len(part))
			for _, id := range padded(part) {
				args = append(args, s.config.Producer, []byte(id), int64(v))
			}
			row := ", (?, ?, ?, {now}, NULL)"
			if v == marker.RolledBack {
				row = ", (?, ?, ?, {now}, {now})" // no DeleteBusiness comes for a tombstone: its retention begins at once
			}
			rows := strings.Repeat(row, len(args)/3)[2:]
			_, err := tx.ExecContext(ctx, s.table.Query(`INSERT INTO {table} (producer, id, verdict, created_at, cleaned_at)
				VALUES `+rows+s.table.KeepOld), args...)
			if err != nil {
				return err
			}
		}
		return s.checkBound(ctx, tx)
	})
}
