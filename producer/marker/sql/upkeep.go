package sql

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/ground/sqldb"
)

// Purge removes markers whose DeleteBusiness, sent messages and tombstones are older than Retention, in slices with a
// transaction each, and returns the number of removed rows. A relay calls Purge every hour; without a relay Delete
// removes old rows in small numbers, unless Config.NoPurge is set.
func (s *Store) Purge(ctx context.Context) (removed int64, err error) {
	removed, err = s.table.Purge(ctx, s.oldRows())
	if err != nil {
		return removed, fmt.Errorf("purge markers: %w", err)
	}
	return removed, nil
}

// oldRows are the rows that a purge removes.
func (s *Store) oldRows() sqldb.OldRows {
	return sqldb.OldRows{
		Where: "producer = ? AND cleaned_at < {now} - ?" + s.scope.condition,
		Age:   "cleaned_at", Index: "cleaned", Key: "producer, id",
		Args: []any{s.config.Producer, s.config.Retention.Milliseconds()},
	}
}

// Backlog is how many unsent messages stand in which state.
type Backlog struct {
	Waiting, Handed, Failed int64
	// Oldest is the age of the oldest waiting message.
	Oldest time.Duration
}

// Counts is how many messages stand in which state.
type Counts struct {
	Backlog
	// Sent is how many messages were sent and are not yet purged.
	Sent int64
}

// Backlog counts this producer's unsent messages. Sent messages cost nothing.
func (s *Store) Backlog(ctx context.Context) (b Backlog, err error) {
	// Each half is covered by an index: due messages by that of the claim, which leads with the shard.
	found, err := s.countStates(ctx, `SELECT state, COUNT(*) FROM {table}
		WHERE producer = ? AND state IN ({waiting}, {handed}) AND due_at IS NOT NULL`+s.scope.condition+` GROUP BY state
		UNION ALL SELECT state, COUNT(*) FROM {table}
		WHERE producer = ? AND state = {failed}`+s.scope.condition+` GROUP BY state`, s.config.Producer, s.config.Producer)
	if err != nil {
		return Backlog{}, fmt.Errorf("count unsent messages: %w", err)
	}
	b.Waiting, b.Handed, b.Failed = found[StateWaiting], found[StateHanded], found[StateFailed]
	var oldest int64
	err = s.db.QueryRowContext(ctx, s.table.Query(`SELECT COALESCE({now} - MIN(created_at), 0) FROM {table}
		WHERE producer = ? AND state = {waiting}`+s.scope.condition), s.config.Producer).Scan(&oldest)
	if err != nil {
		return Backlog{}, fmt.Errorf("find the oldest message: %w", err)
	}
	b.Oldest = time.Duration(oldest) * time.Millisecond
	return b, nil
}

// Counts counts this producer's messages, for people. Counts reads an index entry for each sent message that is not yet
// purged; call Backlog where this takes too long.
func (s *Store) Counts(ctx context.Context) (c Counts, err error) {
	if c.Backlog, err = s.Backlog(ctx); err != nil {
		return Counts{}, err
	}
	found, err := s.countStates(ctx, `SELECT state, COUNT(*) FROM {table}
		WHERE producer = ? AND state = {sent}`+s.scope.condition+` GROUP BY state`, s.config.Producer)
	if err != nil {
		return Counts{}, fmt.Errorf("count sent messages: %w", err)
	}
	c.Sent = found[StateSent]
	return c, nil
}

// countStates runs a query that counts messages by state.
func (s *Store) countStates(ctx context.Context, query string, args ...any) (map[State]int64, error) {
	rows, err := s.db.QueryContext(ctx, s.table.Query(query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	counts := map[State]int64{}
	for rows.Next() {
		var state State
		var n int64
		if err := rows.Scan(&state, &n); err != nil {
			return nil, err
		}
		counts[state] = n
	}
	return counts, rows.Err()
}

// Failure is a message that was refused.
type Failure struct {
	ID       string
	Attempts int
	Error    string
}

// Failures lists messages that were refused up to the limit, in the order of their ids.
func (s *Store) Failures(ctx context.Context, limit int) ([]Failure, error) {
	return s.failures(ctx, `SELECT id, attempts, COALESCE(last_error, '') FROM {table}
		WHERE producer = ? AND state = {failed}`+s.scope.condition+` ORDER BY id LIMIT ?`, limit)
}

// refused lists waiting messages that were refused, among the oldest that wait: behind a broker that is away, millions
// may wait.
func (s *Store) refused(ctx context.Context, oldest, limit int) ([]Failure, error) {
	return s.failures(ctx, `SELECT id, attempts, COALESCE(last_error, '') FROM
		(SELECT id, attempts, last_error FROM {table} WHERE producer = ? AND state = {waiting}`+s.scope.condition+`
		ORDER BY created_at LIMIT ?) oldest WHERE attempts > 0 ORDER BY id LIMIT ?`, oldest, limit)
}

// failures reads messages of this producer by a query.
func (s *Store) failures(ctx context.Context, query string, limits ...any) ([]Failure, error) {
	rows, err := s.db.QueryContext(ctx, s.table.Query(query), append([]any{s.config.Producer}, limits...)...)
	if err != nil {
		return nil, fmt.Errorf("list refused messages: %w", err)
	}
	defer rows.Close()
	var failures []Failure
	for rows.Next() {
		var f Failure
		var id []byte
		if err := rows.Scan(&id, &f.Attempts, &f.Error); err != nil {
			return nil, fmt.Errorf("list refused messages: %w", err)
		}
		f.ID = string(id)
		failures = append(failures, f)
	}
	return failures, rows.Err()
}

// Retry resets failed messages: they are sent again with all attempts. Retry returns their number. Ids of messages
// that have not failed are skipped.
func (s *Store) Retry(ctx context.Context, ids ...string) (retried int64, err error) {
	for part := range slices.Chunk(usable(ids), maxInList) {
		list, args := s.inList(part)
		result, err := s.db.ExecContext(ctx, s.table.Query(`UPDATE {table}
			SET state = {waiting}, attempts = 0, due_at = {now}, updated_at = {now}
			WHERE producer = ? AND state = {failed} AND id IN (`+list+`)`+s.scope.condition),
			append([]any{s.config.Producer}, args...)...)
		if err != nil {
			return retried, fmt.Errorf("retry messages: %w", err)
		}
		n, err := result.RowsAffected()
		if retried += n; err != nil {
			return retried, err
		}
	}
	s.Wake()
	return retried, nil
}
