package sql_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
)

// Behind a deadlock MariaDB has rolled the transaction back, with the inbox's row and the first half of the effect. An
// effect that goes on must not commit its other half, nor have its message acknowledged.
func TestSwallowedDeadlockIsNoEffect(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		if d.dialect == sqlinbox.SQLite {
			return // it has one writer, and no deadlock
		}
		db := d.open(t)
		inbox := d.inbox(t, db, nil)
		other := holdStock(t, d, db)
		swallows := func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
			_ = d.pay(ctx, tx, m)
			if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE id = 1"); err != nil {
				return err
			}
			blocked := make(chan error, 1)
			go func() {
				_, err := other.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE id = 1")
				blocked <- err
			}()
			if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE id = 2"); err == nil {
				t.Error("no deadlock")
			}
			if err := <-blocked; err != nil {
				t.Error(err)
			}
			if err := other.Rollback(); err != nil {
				t.Error(err)
			}
			_, _ = tx.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE id = 2")
			_ = d.pay(ctx, tx, m)
			return nil
		}
		if err := inbox.Handler(swallows).Handle(t.Context(), order("1")); err == nil {
			t.Error("the message is acknowledged")
		}
		var moved int
		if err := db.QueryRowContext(t.Context(), "SELECT SUM(n) FROM stock").Scan(&moved); err != nil {
			t.Fatal(err)
		}
		if moved != 0 || payments(t, db) != 0 {
			t.Errorf("half of the effect is committed: %d moved, %d payments", moved, payments(t, db))
		}
		if err := inbox.Handler(d.pay).Handle(t.Context(), order("1")); err != nil || payments(t, db) != 1 {
			t.Errorf("the redelivered message: %v, %d payments", err, payments(t, db))
		}
	})
}

// holdStock makes two rows, and a transaction that holds the second. It has written more than its rival, so that a
// deadlock ends the rival.
func holdStock(t *testing.T, d database, db *sql.DB) *sql.Tx {
	t.Helper()
	for _, statement := range []string{
		"CREATE TABLE stock (id INT PRIMARY KEY, n INT)", "INSERT INTO stock (id, n) VALUES (1, 0), (2, 0)",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	statements := []string{
		"INSERT INTO stock (id, n) VALUES (11, 0), (12, 0), (13, 0), (14, 0), (15, 0), (16, 0), (17, 0), (18, 0)",
		"UPDATE stock SET n = n + 1 WHERE id > 10", "UPDATE stock SET n = n + 1 WHERE id = 2",
	}
	if d.dialect == sqlinbox.PostgreSQL { // who looks first is ended
		statements = append([]string{"SET LOCAL deadlock_timeout = '1min'"}, statements...)
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return tx
}
