package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
)

// become gives the database another identity, like another database that answers at its address from now on.
func become(t *testing.T, db *sql.DB, identity string) {
	t.Helper()
	change := "UPDATE msghandler_markers_identity SET identity = '" + identity + "'"
	if _, err := db.ExecContext(t.Context(), change); err != nil {
		t.Fatal(err)
	}
}

// A COMMIT is lost, and another database answers afterwards. That database cannot know the outcome, and gets no
// tombstone.
func TestSettleAsksTheSameStore(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, shortLocks)
		own, err := s.Identity(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tx := begin(t, db)
		if err := errors.Join(s.Mark(t.Context(), tx, "1"), tx.Rollback()); err != nil {
			t.Fatal(err)
		}
		become(t, db, "other")
		if _, err := s.Identity(t.Context()); err != nil { // as a question of the coordinator does
			t.Fatal(err)
		}
		err = s.Settle(t.Context(), "1", errLost)
		if !errors.Is(err, producer.ErrOutcomeUnknown) || !errors.Is(err, marker.ErrOtherStore) {
			t.Errorf("the other store decides: %v", err)
		}
		if found, err := s.Lookup(t.Context(), []string{"1"}, false); err != nil || len(found) > 0 {
			t.Errorf("the other store holds %v, %v", found, err)
		}
		become(t, db, own)
		if err := s.Settle(t.Context(), "1", errLost); !errors.Is(err, producer.ErrNotCommitted) {
			t.Errorf("the same store does not decide: %v", err)
		}
	})
}

// The half message names the store that was there. A business in another database would leave its marker where no
// question looks for it.
func TestBusinessMarksTheSameStore(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, shortLocks)
		orders(t, db)
		ran := false
		run := func(context.Context, *sql.Tx) error { ran = true; return nil }
		refused := func(call string, err error) {
			if ran || !errors.Is(err, producer.ErrSendAgain) || !errors.Is(err, marker.ErrOtherStore) {
				t.Errorf("%s in another store: ran: %v, %v", call, ran, err)
			}
		}
		become(t, db, "other")
		tx := begin(t, db)
		refused("Mark", errors.Join(s.Mark(t.Context(), tx, "1"), tx.Rollback()))
		become(t, db, "third")
		refused("InTx", s.InTx(message("1"), run)(t.Context()))
		if err := s.InTx(message("1"), run)(t.Context()); err != nil || !ran {
			t.Errorf("the id cannot be sent again: %v", err)
		}
	})
}
