package sql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// conflictPauses are the waits before a transaction is repeated that failed because of others: a deadlock, a
// serialization failure, a lock timeout. A statement of the effect may time out each time, so the repeats are few.
var conflictPauses = backoff.Steps{50 * time.Millisecond, 250 * time.Millisecond, time.Second}

// resilient keeps trouble of the database from being taken for a fault of the message.
func (i *Inbox) resilient(handle consumer.HandlerFunc) consumer.Handler {
	traits := i.config.Dialect.Traits()
	return consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
		for try := 0; ; try++ {
			err := handle(ctx, m)
			if own := new(effectError); errors.As(err, &own) {
				return own.error
			}
			busy := traits.Busy(err)
			switch {
			case err == nil, errors.As(err, new(*consumer.RejectError)), errors.Is(err, consumer.ErrDuplicate):
				return err
			case busy && try < len(conflictPauses) && backoff.Sleep(ctx, conflictPauses.Delay(try)) == nil:
			case !busy && traits.Transient(err) && !errors.Is(err, consumer.ErrTransient):
				return consumer.Transient(traits.Advise(err))
			default:
				return err
			}
		}
	})
}

// effectError is an error of the effect while the database works.
type effectError struct{ error }

// ofEffect tells an error of the effect from one of its database. A lost connection ends a statement with io.EOF or an
// error of the network. So does a message that is cut short, or another service that is away: if such an error were
// transient, the message would be handled for ever. The transaction knows whether its connection is lost.
func (i *Inbox) ofEffect(ctx context.Context, tx *sql.Tx, err error) error {
	traits := i.config.Dialect.Traits()
	if !traits.Transient(err) || traits.Busy(err) || traits.Stale(err) || traits.Unreachable(err) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return err
	}
	var one int
	lost := tx.QueryRowContext(ctx, "SELECT 1").Scan(&one)
	if traits.Transient(lost) && !errors.Is(lost, sql.ErrTxDone) {
		return err
	}
	return &effectError{err}
}
