package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// Behind a deadlock MariaDB has rolled the transaction back, with the inbox's row and the first half of the effect. An
// effect that goes on must not commit its other half, nor have its message acknowledged: also when another process has
// handled the message by then, whose row has the same key. SQLite rolls back for a full disk, or at the caller's wish.
func TestSwallowedDeadlockIsNoEffect(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		for id, overtaken := range map[string]bool{"alone": false, "overtaken": true} {
			db := d.open(t)
			inbox := d.inbox(t, db, nil)
			loser := servers.NewLoser(t, d.driver, db)
			swallows := func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
				if err := d.pay(ctx, tx, m); err != nil {
					return err
				}
				loser.Lose(t, tx)
				if overtaken {
					if err := d.inbox(t, db, nil).Handler(d.pay).Handle(ctx, m); err != nil {
						t.Error(err)
					}
				}
				_, _ = tx.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE id = 2")
				_ = d.pay(ctx, tx, m)
				return nil
			}
			err := inbox.Handler(swallows).Handle(t.Context(), order(id))
			if err == nil || errors.Is(err, consumer.ErrDuplicate) {
				t.Errorf("%s: the message is acknowledged: %v", id, err)
			}
			want := 0
			if overtaken {
				want = 1
			}
			if paid, moved := payments(t, db), loser.Moved(t); paid != want || moved != 0 {
				t.Errorf("%s: half of the effect is committed: %d moved, %d payments", id, moved, paid)
			}
			err = inbox.Handler(d.pay).Handle(t.Context(), order(id))
			if overtaken != errors.Is(err, consumer.ErrDuplicate) || payments(t, db) != 1 {
				t.Errorf("%s: the redelivered message: %v, %d payments", id, err, payments(t, db))
			}
			for _, table := range []string{"stock", "payments"} {
				if _, err := db.ExecContext(t.Context(), "DROP TABLE "+table); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// A statement that commits, such as DDL of MariaDB, ends the transaction of the effect: what follows is not committed.
func TestDDLInEffectIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		if d.dialect != sqlinbox.MySQL {
			return // their DDL is a part of the transaction
		}
		db := d.open(t)
		err := d.inbox(t, db, nil).Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
			_, err := tx.ExecContext(ctx, "CREATE TABLE receipts (id INT)")
			return errors.Join(err, d.pay(ctx, tx, m))
		}).Handle(t.Context(), order("1"))
		if err == nil || !strings.Contains(err.Error(), "DDL") || payments(t, db) != 0 {
			t.Errorf("%v, with %d payments", err, payments(t, db))
		}
	})
}
