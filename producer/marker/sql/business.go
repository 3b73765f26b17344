package sql

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/msghandler/msghandler/internal/backoff"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
)

// settleTimeout is how long Settle tries to learn what became of a commit. The caller's context has no say: it may be
// what broke the commit off.
const settleTimeout = 5 * time.Second

// Business is a business's part of a transaction. Everything it does goes through tx, which it neither commits nor
// rolls back.
type Business func(ctx context.Context, tx *sql.Tx) error

// beginSteps are the pauses between attempts to begin: short, as locks are held for milliseconds.
var beginSteps = backoff.Exponential(10*time.Millisecond, time.Second)

// Send stores the half message, runs the business in a transaction that marks it first, commits, and submits in the
// background. It returns what [producer.Producer.Send] does; an error of the business means that nothing was committed.
// Where the transaction could not begin or leave its marker for Config.BeginTimeout because of a transient error, or
// the database aborted it at its COMMIT, the error wraps [producer.ErrSendAgain]: send the message again under the same
// id.
func (s *Store) Send(ctx context.Context, p *producer.Producer, m producer.Message, run Business) error {
	return p.Send(ctx, m, s.InTx(m, run))
}

// InTx makes of a business what [producer.Producer.Send] takes: a transaction that marks the message first, runs the
// business and commits.
func (s *Store) InTx(m producer.Message, run Business) func(ctx context.Context) error {
	mark := func(ctx context.Context, tx *sql.Tx) error { return s.Mark(ctx, tx, m.ID) }
	if s.config.Resend > 0 {
		mark = func(ctx context.Context, tx *sql.Tx) error { return s.keep(ctx, tx, m, StateHanded, s.config.Resend) }
	}
	return func(ctx context.Context) error { return s.transact(ctx, m.ID, mark, run) }
}

// transact runs a business in a transaction that leaves its marker first. Until the commit is tried it is certain that
// nothing is committed, and from then on only the database can tell.
func (s *Store) transact(ctx context.Context, id string, mark, run Business) error {
	tx, err := s.begin(ctx, id, mark)
	if err != nil {
		return notCommitted(err)
	}
	tried := false
	defer func() { // deferred, for a business that panics
		if !tried {
			_ = tx.Rollback() // the connection is given up where it fails
		}
	}()
	if err := run(ctx, tx); err != nil {
		return notCommitted(err)
	}
	tried = true
	if err := tx.Commit(); err != nil {
		return s.Settle(ctx, id, err)
	}
	return nil
}

// begin begins a transaction and leaves its marker. As the business has not begun, an error that passes is no reason to
// give the message up: begin tries again, until BeginTimeout or the context ends it.
func (s *Store) begin(ctx context.Context, id string, mark Business) (*sql.Tx, error) {
	limit := time.Now().Add(s.config.BeginTimeout)
	for failures := 0; ; failures++ {
		tx, err := s.beginOnce(ctx, id, mark)
		if err == nil || !s.passes(err) {
			return tx, err
		}
		delay := beginSteps.Delay(failures)
		if time.Now().Add(delay).After(limit) || backoff.Sleep(ctx, delay) != nil {
			return nil, err
		}
	}
}

func (s *Store) beginOnce(ctx context.Context, id string, mark Business) (*sql.Tx, error) {
	tx, err := s.db.BeginTx(ctx, s.config.TxOptions)
	if err != nil {
		return nil, s.unbegun(ctx, "begin the transaction of", id, err)
	}
	marked := false
	defer func() {
		if !marked {
			_ = tx.Rollback() // the connection is given up where it fails
		}
	}()
	if err := mark(ctx, tx); err != nil {
		return nil, err
	}
	marked = true
	return tx, nil
}

// unbegun is the error of a business that could not begin. Where the database refuses the statement for good, such as
// for a missing table or permission, or in a read-only transaction, sending the message again cannot help: the message
// is rolled back.
func (s *Store) unbegun(ctx context.Context, doing, id string, err error) error {
	if s.passes(err) || ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w: %w", doing, id, producer.ErrSendAgain, err)
	}
	return fmt.Errorf("%s %s: the database refuses it, and the message is rolled back: %w", doing, id, err)
}

// passes is Transient, but for read-only transactions that the configuration asks for: PostgreSQL refuses a marker
// there with the code that a standby has after a failover.
func (s *Store) passes(err error) bool {
	return s.Transient(err) && (s.config.TxOptions == nil || !s.config.TxOptions.ReadOnly)
}

// Transient says whether an error of the database is one that passes: a lock that was not to be had in time, a
// deadlock, a serialization failure, a lost connection. A business that met one before its COMMIT may wrap it with
// [producer.ErrSendAgain], and is then sent again under the same id.
func (s *Store) Transient(err error) bool { return s.table.Transient(err) }

// notCommitted says that an error is certain, also where it is one of an ended context.
func notCommitted(err error) error {
	return fmt.Errorf("%w: %w", producer.ErrNotCommitted, err)
}

// Mark leaves the marker of an id in a transaction. Call it before anything else that the transaction writes; after an
// error the transaction is to be rolled back. It fails with [producer.ErrRolledBack] when the coordinator was told that
// this id will never commit, and with [producer.ErrAlreadyCommitted] when it has committed before. Where the database
// does not take the marker for a transient reason (see Transient) or the context has ended, the error wraps
// [producer.ErrSendAgain]: return the error from the business, and the id stays usable.
func (s *Store) Mark(ctx context.Context, tx *sql.Tx, id string) error {
	return s.mark(ctx, tx, id, `INSERT INTO {table} (producer, id, verdict, created_at) VALUES (?, ?, ?, {now})`)
}

// mark runs the INSERT, whose first parameters are producer, id and verdict.
func (s *Store) mark(ctx context.Context, tx *sql.Tx, id, insert string, more ...any) error {
	if len(id) == 0 || len(id) > maxID {
		return fmt.Errorf("mark %q: an id has 1 to %d bytes", id, maxID)
	}
	args := append([]any{s.config.Producer, []byte(id), int64(marker.Committed)}, more...)
	inserted, err := s.table.InsertNew(ctx, tx, insert, args...)
	switch {
	case err != nil:
		return s.unbegun(ctx, "mark", id, err)
	case !inserted:
		return s.taken(ctx, tx, id)
	}
	return nil
}

// taken says who has the id that could not be marked.
func (s *Store) taken(ctx context.Context, tx *sql.Tx, id string) error {
	var verdict marker.Verdict
	err := tx.QueryRowContext(ctx,
		s.table.Query(`SELECT verdict FROM {table} WHERE producer = ? AND id = ?`+s.table.Latest),
		s.config.Producer, []byte(id)).Scan(&verdict)
	switch {
	case err != nil:
		return s.unbegun(ctx, "read the marker of", id, err)
	case verdict == marker.RolledBack:
		return fmt.Errorf("mark %s: %w", id, producer.ErrRolledBack)
	}
	return fmt.Errorf("mark %s: %w", id, producer.ErrAlreadyCommitted)
}

// Settle finds out what became of a transaction whose Commit returned the error cause. Where cause is the database's
// own word that it aborted the transaction, by a serialization failure, a deadlock or SQLite's lock, nothing is
// committed: the error wraps [producer.ErrNotCommitted] and [producer.ErrSendAgain]. Any other cause leaves the outcome
// open, and nothing is tried again. Settle plants the tombstone: if the marker is there the transaction has committed,
// and Settle returns nil; if the tombstone stands the transaction never will, and the error wraps
// [producer.ErrNotCommitted]; and if the database does not say, the error wraps [producer.ErrOutcomeUnknown].
func (s *Store) Settle(ctx context.Context, id string, cause error) error {
	if s.table.Aborted(cause) {
		return notCommitted(fmt.Errorf("commit %s: %w: %w", id, producer.ErrSendAgain, cause))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	standing, err := s.Put(ctx, []string{id}, marker.RolledBack)
	switch {
	case err != nil:
		return producer.Unsure(fmt.Errorf("commit %s: %w, and then %w", id, cause, err))
	case standing[id] == marker.Committed:
		return nil
	case standing[id] == marker.RolledBack:
		return notCommitted(fmt.Errorf("commit %s: %w", id, cause))
	}
	return producer.Unsure(fmt.Errorf("commit %s: %w", id, cause))
}
