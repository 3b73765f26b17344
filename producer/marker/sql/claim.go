package sql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/ground/sqldb"
	"github.com/msghandler/msghandler/producer"
)

// Claim is a batch of messages that a relay holds for the time of its lock.
type Claim struct {
	// Token is the key for Release. Once the lock has ended and another relay has claimed a message, Release does not
	// change the message.
	Token    string
	Messages []Queued
}

// Queued is a message of the table, with its place there.
type Queued struct {
	// Producer is the producer of the message.
	Producer string
	Message  producer.Message
	// Shard is the message's shard.
	Shard int
	// Claims is how often the message was claimed, with this claim. Above 1 an earlier relay may have sent the message.
	Claims int
	// Attempts is how often the message was refused.
	Attempts int
	// Age is the time since the message was enqueued.
	Age time.Duration
	// Unreadable says why the row is not a message of this SDK; nil for every row that the SDK wrote.
	Unreadable error
}

// Claims go by id within a window of the messages that have been due longest: to order a whole backlog would make each
// claim as slow as the backlog is long. Ids that sort behind all new ones would starve in a backlog that lasts, so
// every fifth claim takes the messages of the window that have been due longest. The window is larger than a batch, so
// relays that claim at the same time find different messages.
const (
	windowOfBatches = 5
	longestDueTurn  = 5
)

// order is the order in which a claim takes the messages of its window.
type order string

const (
	byID         order = "id"
	byLongestDue order = "due_at"
)

// Claim locks and returns up to limit due messages that no relay holds: of each shard, messages that were never handed
// over first, then by id. Of more than five times the limit, the order by id is that of the messages that have been due
// longest. Claim is one short transaction that waits for no other: rows that another relay is just claiming are
// skipped.
func (s *Store) Claim(ctx context.Context, owner string, limit int, lock time.Duration) (Claim, error) {
	claim := Claim{Token: owner + "/" + rand.Text()[:10]}
	shards, turn, err := s.claimable(ctx)
	if err != nil {
		return Claim{}, fmt.Errorf("claim messages: %w", err)
	}
	err = s.table.Write(ctx, s.config.LockTimeout, func(tx sqldb.Execer) error {
		claim.Messages = nil
		for _, shard := range shards {
			for _, state := range []string{"{waiting}", "{handed}"} {
				rest := limit - len(claim.Messages)
				t := taking{
					shard: shard, state: state, order: turn, window: windowOfBatches * rest, token: claim.Token, lock: lock,
				}
				ids, err := s.take(ctx, tx, t, rest)
				if err != nil {
					return err
				}
				taken, err := s.load(ctx, tx, picked{shard, ids, "owner = ?", []any{claim.Token}})
				if err != nil {
					return err
				}
				claim.Messages = append(claim.Messages, taken...)
			}
		}
		return nil
	})
	if err != nil {
		return Claim{}, fmt.Errorf("claim messages: %w", err)
	}
	return claim, nil
}

// taking says which messages a claim takes, and for how long.
type taking struct {
	shard int
	state string
	order order
	// window is how many of the messages that have been due longest the claim chooses from.
	window int
	token  string
	lock   time.Duration
}

// due is the condition of messages that a relay may claim.
const due = `due_at <= {now} AND (lock_until IS NULL OR lock_until <= {now})`

// claimedBy are the changes of a claim; the parameters are the token, and twice the lock in milliseconds.
const claimedBy = `owner = ?, claims = claims + 1, lock_time = {now}, lock_until = {now} + ?, due_at = {now} + ?,
	updated_at = {now}`

// unlocked are the changes that end a claim.
const unlocked = `owner = NULL, lock_time = NULL, lock_until = NULL`

// dueIn finds the messages of a shard and a state that have been due longest. The claim's index covers the whole query.
// The parameters are the shard, the producer and the number of messages.
func dueIn(state string, by order) string {
	return `SELECT id FROM (SELECT id, due_at FROM {table} WHERE shard_id = ? AND producer = ? AND state = ` + state + `
		AND ` + due + ` ORDER BY due_at LIMIT ?) longest ORDER BY ` + string(by)
}

// take locks messages.
func (s *Store) take(ctx context.Context, tx sqldb.Execer, t taking, limit int) (taken []string, err error) {
	if limit <= 0 {
		return nil, nil
	}
	if s.table.OneWriter {
		return s.takeAtOnce(ctx, tx, t, limit)
	}
	found, err := s.ids(ctx, tx, dueIn(t.state, t.order), t.shard, s.config.Producer, t.window)
	for err == nil && len(found) > 0 && len(taken) < limit {
		n := min(len(found), limit-len(taken), maxInList)
		var ids []string
		ids, err = s.takeOf(ctx, tx, t, found[:n])
		taken, found = append(taken, ids...), found[n:]
	}
	return taken, err
}

// takeAtOnce is take in one statement, for a database with one writer. Read first and written then, the transaction
// would fail when another wrote in between. The plus signs keep SQLite from reading all that is due.
func (s *Store) takeAtOnce(ctx context.Context, tx sqldb.Execer, t taking, limit int) ([]string, error) {
	return s.ids(ctx, tx, `UPDATE {table} SET `+claimedBy+` WHERE +shard_id = ? AND producer = ? AND +state = `+t.state+`
		AND `+due+` AND id IN (`+dueIn(t.state, t.order)+` LIMIT ?) RETURNING id`,
		t.token, t.lock.Milliseconds(), t.lock.Milliseconds(), t.shard, s.config.Producer,
		t.shard, s.config.Producer, t.window, limit)
}

// takeOf locks those of the messages that no other relay is just claiming. The UPDATE repeats the conditions of the
// SELECT, so that no mistake elsewhere lets two relays hold a message.
func (s *Store) takeOf(ctx context.Context, tx sqldb.Execer, t taking, found []string) ([]string, error) {
	list, args := s.inList(found)
	free := ` WHERE producer = ? AND id IN (` + list + `) AND shard_id = ? AND state = ` + t.state + ` AND ` + due
	args = append(append([]any{s.config.Producer}, args...), t.shard)
	ids, err := s.ids(ctx, tx, `SELECT id FROM {table}{by_key}`+free+` ORDER BY id`+s.table.SkipLocked, args...)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	list, args = s.inList(ids)
	free = ` WHERE producer = ? AND id IN (` + list + `) AND shard_id = ? AND state = ` + t.state + ` AND ` + due
	args = append(append([]any{
		t.token, t.lock.Milliseconds(), t.lock.Milliseconds(), s.config.Producer,
	}, args...), t.shard)
	result, err := tx.ExecContext(ctx, s.table.Query(`UPDATE {table}{by_key} SET `+claimedBy+free), args...)
	if err != nil {
		return nil, err
	}
	n, err := result.RowsAffected()
	if err == nil && n < int64(len(ids)) {
		s.config.Logger.WarnContext(ctx, "a claim locked fewer messages than it chose; the others wait for the next claim; "+
			"look for a trigger, or a program that changes the table",
			"table", s.config.Table, "shard", t.shard, "chosen", len(ids), "claimed", n)
	}
	return ids, err
}

func (s *Store) ids(ctx context.Context, tx sqldb.Execer, query string, args ...any) ([]string, error) {
	rows, err := tx.QueryContext(ctx, s.table.Query(query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, string(id))
	}
	return ids, rows.Err()
}

// picked are the messages of a shard that have one of the ids and meet a condition.
type picked struct {
	shard     int
	ids       []string
	condition string
	args      []any
}

// load returns messages in the order of their ids.
func (s *Store) load(ctx context.Context, tx sqldb.Execer, p picked) (messages []Queued, err error) {
	for part := range slices.Chunk(p.ids, maxInList) {
		list, named := s.inList(part)
		rows, err := tx.QueryContext(ctx, s.table.Query(`SELECT id, claims, attempts, {now}, created_at,
			`+s.form.columns+` FROM {table}
			WHERE producer = ? AND id IN (`+list+`) AND shard_id = ? AND `+p.condition+` ORDER BY id`),
			slices.Concat([]any{s.config.Producer}, named, []any{p.shard}, p.args)...)
		if err != nil {
			return nil, err
		}
		if messages, err = s.scanMessages(rows, p.shard, messages); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// scanMessages appends the messages of load, and closes the rows.
func (s *Store) scanMessages(rows *sql.Rows, shard int, to []Queued) ([]Queued, error) {
	defer rows.Close()
	for rows.Next() {
		q := Queued{Producer: s.config.Producer, Shard: shard}
		content := s.form.content()
		var id []byte
		var now, created int64
		err := rows.Scan(append([]any{&id, &q.Claims, &q.Attempts, &now, &created}, content.fields()...)...)
		if err != nil {
			return nil, err
		}
		q.Age = age(now, created)
		q.Message, q.Unreadable = content.unpack(string(id))
		to = append(to, q)
	}
	return to, rows.Err()
}

// Name is PRODUCER/ID, as logs and commands name the message.
func (q *Queued) Name() string { return q.Producer + "/" + q.Message.ID }

// latest is the last time, in milliseconds since 1970, that is taken for the creation of a message: in the year 2286.
const latest = 9_999_999_999_999

// age is the time from the creation of a message to now, both in milliseconds since 1970. A time that an INSERT wrote
// into the row in another unit must not overflow, and must not fail the statement of a whole claim.
func age(now, created int64) time.Duration {
	return time.Duration(now-min(max(created, 0), latest)) * time.Millisecond
}

// Outcome is the result for a claimed message.
type Outcome struct {
	// ID and Shard are the message's.
	ID    string
	Shard int
	// State is the message's new state.
	State State
	// In is the delay until the message is due again, for StateWaiting and StateHanded.
	In time.Duration
	// Refused counts an attempt.
	Refused bool
	// Unsent: the message certainly did not leave, so this claim is not counted.
	Unsent bool
	// Error is kept for people, up to maxError characters.
	Error string
}

// maxError is how many characters of an error are kept.
const maxError = 1000

// Release records the outcomes of claimed messages, in one transaction, and returns how many of them the claim still
// held. The others were deleted by the coordinator meanwhile, or their lock has ended and another relay has claimed
// them.
func (s *Store) Release(ctx context.Context, token string, outcomes []Outcome) (held int64, err error) {
	alike := make(map[Outcome][]string)
	for _, o := range outcomes {
		id := o.ID
		o.ID, o.Error = "", shortened(o.Error)
		alike[o] = append(alike[o], id)
	}
	err = s.table.Write(ctx, s.config.LockTimeout, func(tx sqldb.Execer) error {
		held = 0
		for o, ids := range alike {
			n, err := s.release(ctx, tx, token, o, ids)
			if err != nil {
				return err
			}
			held += n
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("release messages: %w", err)
	}
	return held, nil
}

func (s *Store) release(ctx context.Context, tx sqldb.Execer, token string, o Outcome, ids []string) (int64, error) {
	set := []string{unlocked, "updated_at = {now}", "state = ?"}
	args := []any{int64(o.State)}
	switch o.State {
	case StateWaiting, StateHanded:
		set = append(set, "due_at = {now} + ?")
		args = append(args, o.In.Milliseconds())
	case StateSent:
		set = append(set, "due_at = NULL", "cleaned_at = {now}", "sent_at = {now}")
	default:
		set = append(set, "due_at = NULL")
	}
	if o.Refused {
		set = append(set, "attempts = attempts + 1")
	}
	if o.Unsent {
		set = append(set, "claims = claims - 1")
	}
	if o.Error != "" {
		set = append(set, "last_error = ?")
		args = append(args, o.Error)
	}
	list, named := s.inList(ids)
	result, err := tx.ExecContext(ctx, s.table.Query(`UPDATE {table} SET `+strings.Join(set, ", ")+
		` WHERE producer = ? AND shard_id = ? AND owner = ? AND id IN (`+list+`)`),
		append(append(args, s.config.Producer, o.Shard, token), named...)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// shortened cuts an error to maxError characters. No database takes a NUL in a text.
func shortened(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "")
	if runes := []rune(text); len(runes) > maxError {
		text = string(runes[:maxError])
	}
	return text
}
