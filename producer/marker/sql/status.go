package sql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

// The calls of this file are for programs with a relay of their own: they read and change messages without a claim.

// Status is a message's state as a word. A waiting message has the status NEW before it was refused, and RETRY after.
type Status string

// The statuses.
const (
	// StatusNew: to be sent, and never refused.
	StatusNew Status = "NEW"
	// StatusRetry: refused, and to be sent again.
	StatusRetry Status = "RETRY"
	// StatusHanded: the coordinator has the message and has not deleted the marker.
	StatusHanded Status = "HANDED"
	// StatusSent: nothing is to be done any more. The row is kept for Retention.
	StatusSent Status = "SENT"
	// StatusFailed: refused up to the limit; kept until Retry.
	StatusFailed Status = "FAILED"
)

// StatusOf returns the status of a message in a state after a number of refusals; empty for StateNone.
func StatusOf(state State, attempts int) Status {
	if state == StateWaiting && attempts > 0 {
		return StatusRetry
	}
	return map[State]Status{
		StateWaiting: StatusNew, StateHanded: StatusHanded, StateSent: StatusSent, StateFailed: StatusFailed,
	}[state]
}

// CountsByStatus counts this producer's messages by status. A status without messages is 0.
func (s *Store) CountsByStatus(ctx context.Context) (map[Status]int64, error) {
	counts := map[Status]int64{StatusNew: 0, StatusRetry: 0, StatusHanded: 0, StatusSent: 0, StatusFailed: 0}
	rows, err := s.db.QueryContext(ctx, s.table.Query(`SELECT state, tried, COUNT(*) FROM (
			SELECT state, CASE WHEN attempts > 0 THEN 1 ELSE 0 END AS tried FROM {table}
			WHERE producer = ? AND state <> {none}`+s.scope.condition+`) messages
		GROUP BY state, tried`), s.config.Producer)
	if err != nil {
		return nil, fmt.Errorf("count messages: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var state State
		var tried int
		var n int64
		if err := rows.Scan(&state, &tried, &n); err != nil {
			return nil, fmt.Errorf("count messages: %w", err)
		}
		if status := StatusOf(state, tried); status != "" {
			counts[status] += n
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("count messages: %w", err)
	}
	return counts, nil
}

// Pending returns up to limit messages that are due and that no relay holds, in the order of Claim. Pending locks
// nothing: two programs that call Pending get the same messages.
func (s *Store) Pending(ctx context.Context, limit int) (pending []Queued, err error) {
	shards, turn, err := s.claimable(ctx)
	if err != nil {
		return nil, fmt.Errorf("read pending messages: %w", err)
	}
	for _, shard := range shards {
		if len(pending) >= limit {
			break
		}
		ids, err := s.ids(ctx, s.db, dueIn("{waiting}", "", turn)+" LIMIT ?",
			shard, s.config.Producer, windowOfBatches*limit, limit-len(pending))
		if err != nil {
			return nil, fmt.Errorf("read pending messages: %w", err)
		}
		found, err := s.load(ctx, picked{shard: shard, ids: ids, condition: "state = {waiting}"})
		if err != nil {
			return nil, fmt.Errorf("read pending messages: %w", err)
		}
		pending = append(pending, found...)
	}
	return pending, nil
}

// MarkSent records that the broker has messages, and returns how many of them were unsent before.
func (s *Store) MarkSent(ctx context.Context, ids ...string) (marked int64, err error) {
	return s.change(ctx, ids, `state = {sent}, due_at = NULL, sent_at = {now}, cleaned_at = {now}`)
}

// MarkFailed records that messages are given up until Retry, with the reason for people, and returns how many of them
// were unsent before.
func (s *Store) MarkFailed(ctx context.Context, reason string, ids ...string) (marked int64, err error) {
	return s.change(ctx, ids, `state = {failed}, due_at = NULL, last_error = ?`, shortened(reason))
}

// change changes unsent messages, and ends the claims of relays that hold them.
func (s *Store) change(ctx context.Context, ids []string, set string, args ...any) (changed int64, err error) {
	for part := range slices.Chunk(usable(ids), maxInList) {
		list, named := s.inList(part)
		result, err := s.db.ExecContext(ctx, s.table.Query(`UPDATE {table} SET `+set+`, `+unlocked+`, updated_at = {now}
			WHERE producer = ? AND state IN ({waiting}, {handed}, {failed}) AND id IN (`+list+`)`+s.scope.condition),
			slices.Concat(args, []any{s.config.Producer}, named)...)
		if err != nil {
			return changed, fmt.Errorf("change messages: %w", err)
		}
		n, err := result.RowsAffected()
		if changed += n; err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// IncrementAttempts records that a waiting message was refused and is due again after a delay, with the reason for
// people. It returns the number of refusals, or 0 for an id that is no waiting message.
func (s *Store) IncrementAttempts(ctx context.Context, id string, delay time.Duration, reason string) (int, error) {
	result, err := s.db.ExecContext(ctx, s.table.Query(`UPDATE {table} SET attempts = attempts + 1, due_at = {now} + ?,
		last_error = ?, `+unlocked+`, updated_at = {now}
		WHERE producer = ? AND id = ? AND state = {waiting}`+s.scope.condition),
		delay.Milliseconds(), shortened(reason), s.config.Producer, []byte(id))
	if err != nil {
		return 0, fmt.Errorf("increment the attempts of %s: %w", id, err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return 0, err
	}
	var attempts sql.NullInt64
	err = s.db.QueryRowContext(ctx, s.table.Query(`SELECT attempts FROM {table} WHERE producer = ? AND id = ?`),
		s.config.Producer, []byte(id)).Scan(&attempts)
	if err != nil {
		return 0, fmt.Errorf("read the attempts of %s: %w", id, err)
	}
	return int(attempts.Int64), nil
}
