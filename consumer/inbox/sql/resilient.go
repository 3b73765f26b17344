package sql

import (
	"context"
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
			busy := traits.Busy(err)
			switch {
			case err == nil, errors.As(err, new(*consumer.RejectError)), errors.Is(err, consumer.ErrDuplicate):
				return err
			case busy && try < len(conflictPauses) && backoff.Sleep(ctx, conflictPauses.Delay(try)) == nil:
			case !busy && traits.Transient(err) && !errors.Is(err, consumer.ErrTransient):
				return consumer.Transient(err)
			default:
				return err
			}
		}
	})
}
