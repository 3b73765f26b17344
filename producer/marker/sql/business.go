package sql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/sqldb"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
)

// settleTimeout bounds how long Settle looks for the outcome of a commit. The caller's context does not apply: the
// context may have broken the commit.
const settleTimeout = 5 * time.Second

// Business is the business's part of a transaction. All its statements go through tx; Business neither commits nor
// rolls tx back, and runs no DDL on MySQL, which commits.
type Business func(ctx context.Context, tx *sql.Tx) error

// beginSteps are the pauses between attempts to begin: short, as locks are held for milliseconds.
var beginSteps = backoff.Exponential(10*time.Millisecond, time.Second)

// Send stores the half message, runs the business in a transaction that marks the message first, commits, and submits
// in the background. Send returns the errors of [producer.Producer.Send]; an error of the business means that nothing
// was committed. The error wraps [producer.ErrSendAgain], and the same id may be sent again, when the transaction could
// not begin within Config.BeginTimeout, when the database aborted the transaction at its COMMIT, and when the error of
// the business is one of the database that passes (see Transient). A business that gives its message up nevertheless
// wraps the error with [producer.Permanent].
func (s *Store) Send(ctx context.Context, p *producer.Producer, m producer.Message, run Business) error {
	return p.Send(ctx, m, s.InTx(m, run))
}

// InTx turns a business into the function for [producer.Producer.Send]: a transaction that marks the message first,
// runs the business and commits.
func (s *Store) InTx(m producer.Message, run Business) func(ctx context.Context) error {
	mark := func(ctx context.Context, s *Store, tx *sql.Tx) error { return s.Mark(ctx, tx, m.ID) }
	if s.config.Resend > 0 {
		mark = func(ctx context.Context, s *Store, tx *sql.Tx) error {
			return s.keep(ctx, tx, m, StateHanded, s.config.Resend)
		}
	}
	return func(ctx context.Context) error { return s.transact(ctx, m.ID, mark, run) }
}

// marking leaves the marker in a transaction, first of all, by a store that is bound to an identity.
type marking func(ctx context.Context, s *Store, tx *sql.Tx) error

// transact runs a business in a transaction that leaves its marker first. Before the commit certainly nothing is
// committed; after the commit only the database knows.
func (s *Store) transact(ctx context.Context, id string, mark marking, run Business) error {
	s, err := s.boundToLast(ctx)
	if err != nil {
		return notCommitted(s.unbegun(ctx, "begin the transaction of", id, err))
	}
	tx, err := s.begin(ctx, id, mark)
	if err != nil {
		return notCommitted(err)
	}
	tried := false
	defer func() { // deferred, for a business that panics
		if !tried {
			_ = tx.Rollback() // after a failure the driver drops the connection
		}
	}()
	failed := run(ctx, tx.Tx)
	open := tx.StillOpen(ctx)
	switch {
	case errors.Is(open, sqldb.ErrEnded):
		_ = tx.Rollback() // of what followed the end
		return s.ended(ctx, id, cmp.Or(failed, open))
	case failed != nil:
		return notCommitted(s.ofBusiness(ctx, failed))
	case open != nil:
		return notCommitted(fmt.Errorf("look at the transaction of %s: %w: %w", id, producer.ErrSendAgain, open))
	}
	tried = true
	if err := tx.Commit(); err != nil {
		return s.Settle(ctx, id, err)
	}
	return nil
}

// ended is the error of a business whose transaction ended before its COMMIT: rolled back by the database, with its
// marker, or committed by a statement such as DDL, or by the business itself.
func (s *Store) ended(ctx context.Context, id string, cause error) error {
	looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	found, err := s.look(looking, []string{id})
	if err != nil || found[id] == marker.Committed {
		return producer.Unsure(errors.Join(cause, err))
	}
	return notCommitted(s.ofBusiness(ctx, cause))
}

// begin begins a transaction and leaves its marker. The business has not begun, so a transient error is no reason to
// give the message up: begin retries until BeginTimeout or the end of the context.
func (s *Store) begin(ctx context.Context, id string, mark marking) (*sqldb.Tx, error) {
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

func (s *Store) beginOnce(ctx context.Context, id string, mark marking) (begun *sqldb.Tx, err error) {
	tx, err := s.table.Begin(ctx, s.config.TxOptions)
	if err != nil {
		return nil, s.unbegun(ctx, "begin the transaction of", id, err)
	}
	marked := false
	defer func() {
		if !marked {
			_ = tx.Rollback() // after a failure the driver drops the connection
		}
		if s.passes(err) {
			s.table.LeaveReadOnly(ctx, err)
		}
	}()
	if err := mark(ctx, s, tx.Tx); err != nil {
		return nil, err
	}
	marked = true
	return tx, nil
}

// ofBusiness is the error of a business. One of the database that passes, or of the ended context or transaction, is no
// decision about the message.
func (s *Store) ofBusiness(ctx context.Context, err error) error {
	ended := errors.Is(err, sqldb.ErrEnded) ||
		ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
	if !errors.Is(err, producer.ErrPermanent) && (ended || s.Transient(err)) {
		return fmt.Errorf("%w: %w", producer.ErrSendAgain, s.table.Advise(err))
	}
	return err
}

// unbegun is the error of a business that could not begin. Only if the database is known to refuse the statement for
// good, such as for a missing table or permission, or in a read-only transaction, another attempt cannot help: the
// message is rolled back.
func (s *Store) unbegun(ctx context.Context, doing, id string, err error) error {
	if ctx.Err() == nil && (s.readOnly() || s.table.Refused(err)) {
		return fmt.Errorf("%s %s: the database refuses it, and the message is rolled back: %w", doing, id, err)
	}
	return fmt.Errorf("%s %s: %w: %w", doing, id, producer.ErrSendAgain, s.table.Advise(err))
}

// passes is Transient, except for read-only transactions of the configuration: PostgreSQL refuses a marker there with
// the code of a standby after a failover.
func (s *Store) passes(err error) bool { return s.Transient(err) && !s.readOnly() }

func (s *Store) readOnly() bool { return s.config.TxOptions != nil && s.config.TxOptions.ReadOnly }

// Transient reports whether an error of the database is transient: a lock timeout, a deadlock, a serialization
// failure, a lost connection, a connection that was closed before the statement was sent, a statement that was prepared
// before its table has changed or by another client of a pooler, a full disk. Send, InTx and Commit wrap such an error
// with [producer.ErrSendAgain]. In your own transaction wrap the error yourself, before its COMMIT only.
func (s *Store) Transient(err error) bool { return s.table.Transient(err) }

// notCommitted marks an error as certain, even one of an ended context.
func notCommitted(err error) error {
	return fmt.Errorf("%w: %w", producer.ErrNotCommitted, err)
}

// Mark leaves the marker of an id in a transaction. Call Mark before anything else that the transaction writes; after
// an error roll the transaction back. The error wraps [producer.ErrRolledBack] when the coordinator has the answer
// that this id will never commit, and [producer.ErrAlreadyCommitted] when the id has committed before. After any other
// failure that is not known to be permanent the error wraps [producer.ErrSendAgain]: return the error from the
// business, and the id stays usable.
func (s *Store) Mark(ctx context.Context, tx *sql.Tx, id string) error {
	return s.mark(ctx, tx, id, `INSERT INTO {table} (producer, id, verdict, created_at)
		SELECT ?, ?, ?, {now}`)
}

// mark runs the INSERT from a SELECT, whose first parameters are producer, id and verdict. No row is written in another
// database than the one whose identity the half message names: no question would find the marker there.
func (s *Store) mark(ctx context.Context, tx *sql.Tx, id, insert string, more ...any) error {
	if len(id) == 0 || len(id) > maxID {
		return fmt.Errorf("mark %q: an id has 1 to %d bytes", id, maxID)
	}
	args := append(append([]any{s.config.Producer, []byte(id), int64(marker.Committed)}, more...), s.markedIn())
	inserted, err := s.table.InsertNew(ctx, tx, insert+` FROM {table}_identity WHERE ? IN ('', identity)`, args...)
	switch {
	case err != nil:
		return s.unbegun(ctx, "mark", id, err)
	case !inserted:
		return s.taken(ctx, tx, id)
	}
	return nil
}

// taken returns the error for an id that has a marker or a tombstone already.
func (s *Store) taken(ctx context.Context, tx *sql.Tx, id string) error {
	var verdict marker.Verdict
	err := tx.QueryRowContext(ctx,
		s.table.Query(`SELECT verdict FROM {table} WHERE producer = ? AND id = ?`+s.table.Latest),
		s.config.Producer, []byte(id)).Scan(&verdict)
	if errors.Is(err, sql.ErrNoRows) {
		err = cmp.Or(s.boundTo(s.markedIn()).checkBound(ctx, tx), err)
	}
	switch {
	case err != nil:
		return s.unbegun(ctx, "read the marker of", id, err)
	case verdict == marker.RolledBack:
		return fmt.Errorf("mark %s: %w", id, producer.ErrRolledBack)
	}
	return fmt.Errorf("mark %s: %w", id, producer.ErrAlreadyCommitted)
}

// Settle finds the outcome of a transaction whose Commit returned the error cause. If cause says that the database
// aborted the transaction, by a serialization failure, a deadlock or SQLite's lock, nothing is committed: the error
// wraps [producer.ErrNotCommitted] and [producer.ErrSendAgain]. Any other cause leaves the outcome open, and nothing
// is retried. Then Settle plants the tombstone. If the marker is there, the transaction has committed, and Settle
// returns nil. If the tombstone is there, the transaction never will, and the error wraps [producer.ErrNotCommitted].
// If the database gives no answer, or is another one by now, the error wraps [producer.ErrOutcomeUnknown].
func (s *Store) Settle(ctx context.Context, id string, cause error) error {
	if s.table.Aborted(cause) {
		return notCommitted(fmt.Errorf("commit %s: %w: %w", id, producer.ErrSendAgain, cause))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if first := s.identities.first.Load(); s.bound == "" && first != nil {
		s = s.boundTo(*first)
	}
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
