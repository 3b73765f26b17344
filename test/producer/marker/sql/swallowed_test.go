package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

// A deadlock rolls the marker back with the first half of a business. A business that goes on commits nothing.
func TestSwallowedDeadlockIsNoCommit(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		orders(t, db)
		other := holdStock(t, d, db)
		err := s.InTx(message("1001"), func(ctx context.Context, tx *sql.Tx) error {
			_ = insertOrder(d.dialect, "first")(ctx, tx)
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
			if err := errors.Join(<-blocked, other.Rollback()); err != nil {
				t.Error(err)
			}
			_ = insertOrder(d.dialect, "second")(ctx, tx)
			return nil
		})(t.Context())
		if !errors.Is(err, producer.ErrNotCommitted) {
			t.Errorf("the swallowed error ends as %v", err)
		}
		if ids := orderIDs(t, db); len(ids) != 0 {
			t.Errorf("half of the business is committed: %v", ids)
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
	if d.dialect == sqlmarker.PostgreSQL { // who looks first is ended
		statements = append([]string{"SET LOCAL deadlock_timeout = '1min'"}, statements...)
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return tx
}
