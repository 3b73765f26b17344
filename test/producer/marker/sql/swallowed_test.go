package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// A deadlock rolls the marker back with the first half of a business. A business that goes on commits nothing: also
// when another run of the id has committed by then, whose marker is like its own.
func TestSwallowedDeadlockIsNoCommit(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		orders(t, db)
		for id, overtaken := range map[string]bool{"alone": false, "overtaken": true} {
			loser := servers.NewLoser(t, d.driver, db)
			err := s.InTx(message(id), func(ctx context.Context, tx *sql.Tx) error {
				_ = insertOrder(d.dialect, "first-"+id)(ctx, tx)
				loser.Lose(t, tx)
				if overtaken {
					if err := s.InTx(message(id), insertOrder(d.dialect, "whole"))(ctx); err != nil {
						t.Error(err)
					}
				}
				_ = insertOrder(d.dialect, "second-"+id)(ctx, tx)
				return nil
			})(t.Context())
			want := map[bool]error{false: producer.ErrNotCommitted, true: producer.ErrOutcomeUnknown}[overtaken]
			if d.dialect == sqlmarker.PostgreSQL { // it reports a COMMIT that rolled back, and then the marker stands
				want = map[bool]error{false: producer.ErrNotCommitted, true: nil}[overtaken]
			}
			if !errors.Is(err, want) {
				t.Errorf("%s: the swallowed error ends as %v", id, err)
			}
			ids := orderIDs(t, db)
			if delete(ids, "whole"); len(ids) != 0 {
				t.Errorf("%s: half of the business is committed: %v", id, ids)
			}
			if _, err := db.ExecContext(t.Context(), "DROP TABLE stock"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A statement that commits, such as DDL of MariaDB, ends the transaction: its first half is committed, and the business
// must not be said to have failed.
func TestDDLInBusinessIsRefused(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, d database) {
		if d.dialect != sqlmarker.MySQL {
			return // its DDL is a part of the transaction
		}
		db := d.open(t)
		s := d.store(t, db, nil)
		orders(t, db)
		for id, fails := range map[string]error{"ends": nil, "fails": errors.New("no money")} {
			err := s.InTx(message(id), func(ctx context.Context, tx *sql.Tx) error {
				first := insertOrder(d.dialect, "first-"+id)(ctx, tx)
				_, ddl := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS receipts (id INT)")
				return errors.Join(first, ddl, insertOrder(d.dialect, "second-"+id)(ctx, tx), fails)
			})(t.Context())
			if !errors.Is(err, producer.ErrOutcomeUnknown) || fails == nil && !strings.Contains(err.Error(), "DDL") {
				t.Errorf("%s: %v", id, err)
			}
			if ids := orderIDs(t, db); !ids["first-"+id] || ids["second-"+id] {
				t.Errorf("%s: committed are %v", id, ids)
			}
		}
	})
}

// A business that commits by itself must not be said to have failed. SQLite refuses its COMMIT.
func TestBusinessThatCommitsIsNoFailure(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		orders(t, db)
		err := s.InTx(message("1"), func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(insertOrder(d.dialect, "1")(ctx, tx), tx.Commit())
		})(t.Context())
		want := producer.ErrOutcomeUnknown
		if d.dialect == sqlmarker.SQLite {
			want = producer.ErrNotCommitted
		}
		ids := orderIDs(t, db)
		if err != nil && !errors.Is(err, want) || ids["1"] == errors.Is(err, producer.ErrNotCommitted) {
			t.Errorf("the business ends as %v, and committed are %v", err, ids)
		}
	})
}
