package sql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
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

// Queued is a claimed message.
type Queued struct {
	Message producer.Message
	// Claims is how often the message was claimed, with this claim. Above 1 an earlier relay may have sent the message.
	Claims int
	// Attempts is how often the message was refused.
	Attempts int
	// Age is the time since the message was enqueued.
	Age time.Duration
	// Unreadable says why the row is not a message of this SDK; nil for every row that the SDK wrote.
	Unreadable error
}

// Claim locks and returns up to limit due messages that no relay holds: messages that were never sent first, the
// oldest first. Claim is one short transaction that waits for no other: rows that another relay is just claiming are
// skipped.
func (s *Store) Claim(ctx context.Context, owner string, limit int, lock time.Duration) (Claim, error) {
	claim := Claim{Token: owner + "/" + rand.Text()[:10]}
	by := holder{claim.Token, lock}
	err := s.table.Write(ctx, s.config.LockTimeout, func(tx sqldb.Execer) error {
		for _, state := range []string{"{waiting}", "{handed}"} {
			ids, err := s.take(ctx, tx, state, by, limit-len(claim.Messages))
			if err != nil {
				return err
			}
			if claim.Messages, err = s.load(ctx, tx, ids, claim.Messages); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Claim{}, fmt.Errorf("claim messages: %w", err)
	}
	return claim, nil
}

// holder is who takes messages, and for how long.
type holder struct {
	token string
	lock  time.Duration
}

// dueIn finds the due messages of a state. The index of the same name covers the whole query.
func dueIn(state string) string {
	return `SELECT id FROM {table} WHERE producer = ? AND state = ` + state + ` AND due_at <= {now} ORDER BY due_at LIMIT ?`
}

// take locks messages of a state.
func (s *Store) take(
	ctx context.Context, tx sqldb.Execer, state string, by holder, limit int,
) (ids []string, err error) {
	if limit <= 0 {
		return nil, nil
	}
	due := dueIn(state)
	lockRows := `UPDATE {table} SET owner = ?, claims = claims + 1, due_at = {now} + ? WHERE producer = ? AND id IN (`
	if s.table.OneWriter {
		// Read first and written then, the transaction would fail when another wrote in between.
		return s.ids(ctx, tx, lockRows+due+`) RETURNING id`,
			by.token, by.lock.Milliseconds(), s.config.Producer, s.config.Producer, limit)
	}
	if ids, err = s.ids(ctx, tx, due+s.table.SkipLocked, s.config.Producer, limit); err != nil || len(ids) == 0 {
		return nil, err
	}
	list, args := inList(ids)
	_, err = tx.ExecContext(ctx, s.table.Query(lockRows+list+`)`),
		append([]any{by.token, by.lock.Milliseconds(), s.config.Producer}, args...)...)
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

// load appends the messages of the ids.
func (s *Store) load(ctx context.Context, tx sqldb.Execer, ids []string, to []Queued) ([]Queued, error) {
	if len(ids) == 0 {
		return to, nil
	}
	list, args := inList(ids)
	rows, err := tx.QueryContext(ctx, s.table.Query(`SELECT id, message, body, claims, attempts, {now} - created_at
		FROM {table} WHERE producer = ? AND id IN (`+list+`) ORDER BY created_at`),
		append([]any{s.config.Producer}, args...)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var q Queued
		var id, body []byte
		var text sql.NullString
		var age int64
		if err := rows.Scan(&id, &text, &body, &q.Claims, &q.Attempts, &age); err != nil {
			return nil, err
		}
		q.Age = time.Duration(age) * time.Millisecond
		q.Message, q.Unreadable = unpack(string(id), text.String, body)
		to = append(to, q)
	}
	return to, rows.Err()
}

// Outcome is the result for a claimed message.
type Outcome struct {
	// ID is the message's.
	ID string
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
	set := []string{"owner = NULL", "state = ?"}
	args := []any{int64(o.State)}
	switch o.State {
	case StateWaiting, StateHanded:
		set = append(set, "due_at = {now} + ?")
		args = append(args, o.In.Milliseconds())
	case StateSent:
		set = append(set, "due_at = NULL", "cleaned_at = {now}")
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
	list, named := inList(ids)
	result, err := tx.ExecContext(ctx, s.table.Query(`UPDATE {table} SET `+strings.Join(set, ", ")+
		` WHERE producer = ? AND owner = ? AND id IN (`+list+`)`),
		append(append(args, s.config.Producer, token), named...)...)
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
