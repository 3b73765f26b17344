package sql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
)

// The end of its context rolls a transaction back, beside the effect. The session must not be given back to the pool
// before: to let a session of MariaDB commit each statement again commits a transaction that is open.
func TestCancelledEffectCommitsNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		inbox := d.inbox(t, db, nil)
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			ended := inbox.Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
				if err := d.pay(ctx, tx, m); err != nil {
					return err
				}
				time.AfterFunc(5*time.Millisecond, cancel)
				statement := "SELECT 1"
				if d.dialect == sqlinbox.MySQL {
					statement = "SELECT SLEEP(0.03)"
				}
				for ctx.Err() == nil {
					_, _ = tx.ExecContext(t.Context(), statement) // one ends behind the cancellation
				}
				return ctx.Err()
			}).Handle(ctx, order("1"))
			if ended == nil {
				t.Fatal("the message is acknowledged")
			}
		}
		if paid := payments(t, db); paid != 0 {
			t.Errorf("%d effects that failed are committed", paid)
		}
		if err := inbox.Handler(d.pay).Handle(t.Context(), order("1")); err != nil || payments(t, db) != 1 {
			t.Errorf("the redelivered message: %v, %d payments", err, payments(t, db))
		}
	})
}
