package sql

import (
	"context"
	"embed"
	"slices"

	"github.com/msghandler/msghandler/internal/ground/sqldb"
)

//go:embed ddl
var ddl embed.FS

// Dialect is the kind of database of a store.
type Dialect = sqldb.Dialect

// The dialects.
const (
	// PostgreSQL, through a driver whose errors tell their SQLState, as pgx and lib/pq do.
	PostgreSQL = sqldb.PostgreSQL
	// MySQL and MariaDB, with InnoDB, through go-sql-driver/mysql.
	MySQL = sqldb.MySQL
	// SQLite, through modernc.org/sqlite or another.
	SQLite = sqldb.SQLite
)

// DDL returns the statements that Migrate runs on an empty database, for deployments that create tables themselves:
// the statements for the table, and the record of its version.
func (s *Store) DDL() ([]string, error) { return s.table.DDL() }

// Migrate creates the table, or upgrades the table to this version of the SDK. Call Migrate at every start, also from
// several processes at once; an up-to-date table is not changed. Migrate fails for a table that is newer than the
// SDK, unless all newer steps are compatible: then programs of both versions use the table side by side.
//
// Messages that an older version enqueued and nobody has sent get their columns too, up to 10,000 with each call. The
// columns are for people: a relay sends a message without them as well.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.table.Migrate(ctx); err != nil {
		return err
	}
	if err := s.fillColumns(ctx); err != nil {
		s.config.Logger.WarnContext(ctx, "messages of an older version lack columns; they are sent; the next start retries",
			"table", s.config.Table, "cause", err)
	}
	return nil
}

// mostFilled is how many messages a call of fillColumns changes.
const mostFilled = 10_000

// fillColumns writes the columns of unsent messages that an older version enqueued.
func (s *Store) fillColumns(ctx context.Context) error {
	ids, err := s.ids(ctx, s.db, `SELECT id FROM {table} WHERE producer = ? AND state IN ({waiting}, {handed}, {failed})
		AND exchange_name IS NULL AND message IS NOT NULL LIMIT ?`, s.config.Producer, mostFilled)
	if err != nil {
		return err
	}
	const few = 100 // bodies may be long
	for part := range slices.Chunk(ids, few) {
		messages, err := s.load(ctx, picked{ids: part, condition: "exchange_name IS NULL"})
		if err != nil {
			return err
		}
		for _, q := range messages {
			if q.Unreadable != nil {
				continue
			}
			args := append(columns(q.Message, s.config.Describe(q.Message)), s.config.Producer, []byte(q.Message.ID))
			_, err := s.db.ExecContext(ctx, s.table.Query(`UPDATE {table} SET exchange_name = ?, routing_key = ?,
				event_type = ?, aggregate_type = ?, aggregate_id = ?
				WHERE shard_id = 0 AND producer = ? AND id = ? AND exchange_name IS NULL`), args...)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
