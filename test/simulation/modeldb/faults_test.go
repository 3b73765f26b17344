package modeldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/simulation/modeldb"
)

// troubles are the troubles of calls, by step; each happens once.
type troubles map[modeldb.Step]modeldb.Trouble

func (t troubles) Trouble(call modeldb.Call) modeldb.Trouble {
	trouble := t[call.Step]
	delete(t, call.Step)
	return trouble
}

// inBubble plays with a server in simulated time.
func inBubble(t *testing.T, test func(t *testing.T, s *modeldb.Server, db *sql.DB, next troubles)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		next := troubles{}
		s := modeldb.NewServer("shop", next)
		db := s.Open()
		defer db.Close()
		must.Succeed(t, exec(db, shop))
		must.Succeed(t, exec(db, "INSERT INTO shop (id, word) VALUES (1, 'one'), (2, 'two')"))
		test(t, s, db, next)
	})
}

func exec(db *sql.DB, statement string) error {
	_, err := db.Exec(statement)
	return err
}

// insertThird inserts a row in a transaction.
func insertThird(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO shop (id, word) VALUES (3, 'three')"); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func count(t *testing.T, s *modeldb.Server) int64 {
	t.Helper()
	rows := get(s.Read("SELECT COUNT(*) FROM shop"))(t)
	return rows[0][0].(int64)
}

func TestCommitIsCut(t *testing.T) {
	for _, c := range []struct {
		name    string
		trouble modeldb.Trouble
		// now is how many rows there are after the error, and later a minute after.
		now, later int64
	}{
		{"before the server has it", modeldb.Trouble{Cut: modeldb.CutBefore}, 2, 2},
		{"its answer is lost", modeldb.Trouble{Cut: modeldb.CutAfter}, 3, 3},
		{"it comes late", modeldb.Trouble{Cut: modeldb.CutLate, Lingers: 30 * time.Second}, 2, 3},
		{"the server refuses it", modeldb.Trouble{State: "40001"}, 2, 2},
		{"the server shuts down", modeldb.Trouble{State: "57P01"}, 2, 2},
		{"it takes long", modeldb.Trouble{Delay: time.Second, AnswerDelay: time.Second}, 3, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *modeldb.Server, db *sql.DB, next troubles) {
				next[modeldb.Commit] = c.trouble
				err := insertThird(t.Context(), db)
				wantsReset := c.trouble.Cut != modeldb.Uncut
				if errors.Is(err, syscall.ECONNRESET) != wantsReset || (err == nil) != (c.name == "it takes long") {
					t.Errorf("COMMIT returns %v", err)
				}
				if n := count(t, s); n != c.now {
					t.Errorf("%d rows after the COMMIT, want %d", n, c.now)
				}
				time.Sleep(time.Minute)
				if n := count(t, s); n != c.later {
					t.Errorf("%d rows later, want %d", n, c.later)
				}
				if n := get(s.Read("SELECT id FROM shop"))(t); int64(len(n)) != c.later {
					t.Errorf("%d rows are read", len(n))
				}
				must.Succeed(t, exec(db, "INSERT INTO shop (id, word) VALUES (4, 'four')"))
			})
		})
	}
}

func TestCutStatementLeavesLocksBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, s *modeldb.Server, db *sql.DB, next troubles) {
		tx := get(db.Begin())(t)
		get(tx.Exec("INSERT INTO shop (id, word) VALUES (3, 'lost')"))(t)
		next[modeldb.Statement] = modeldb.Trouble{Cut: modeldb.CutAfter, Lingers: 20 * time.Second}
		if _, err := tx.Exec("UPDATE shop SET word = 'lost' WHERE id = 1"); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the statement returns %v", err)
		}
		_ = tx.Rollback() // the connection is gone
		begun := time.Now()
		must.Succeed(t, insertThird(t.Context(), db))
		if waited := time.Since(begun); waited < 19*time.Second || waited > 21*time.Second {
			t.Errorf("the insert waited %v for the transaction that was cut off", waited)
		}
		if rows := get(s.Read("SELECT word FROM shop ORDER BY id"))(t); fmt.Sprint(rows) != "[[one] [two] [three]]" {
			t.Errorf("the rows are %v", rows)
		}
	})
}

func TestStoppedServerKeepsWhatCommitted(t *testing.T) {
	inBubble(t, func(t *testing.T, s *modeldb.Server, db *sql.DB, _ troubles) {
		tx := get(db.Begin())(t)
		get(tx.Exec("INSERT INTO shop (id, word) VALUES (3, 'open')"))(t)
		waiting := make(chan error)
		go func() { waiting <- insertThird(t.Context(), db) }()
		synctest.Wait()
		s.Stop()
		if err := <-waiting; err == nil {
			t.Error("a statement outlives its server")
		}
		if err := tx.Commit(); err == nil {
			t.Error("a COMMIT succeeds on a stopped server")
		}
		if err := exec(db, "SELECT id FROM shop"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a stopped server answers %v", err)
		}
		s.Start()
		must.Succeed(t, insertThird(t.Context(), db))
		if n := count(t, s); n != 3 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestEndedContextEndsTransaction(t *testing.T) {
	inBubble(t, func(t *testing.T, s *modeldb.Server, db *sql.DB, _ troubles) {
		holder := get(db.Begin())(t)
		get(holder.Exec("INSERT INTO shop (id, word) VALUES (3, 'held')"))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := insertThird(ctx, db); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the insert returns %v", err)
		}
		must.Succeed(t, holder.Rollback())
		if n := count(t, s); n != 2 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestReplicaFollowsWithLag(t *testing.T) {
	inBubble(t, func(t *testing.T, s *modeldb.Server, db *sql.DB, _ troubles) {
		replica := s.Replica("replica", 10*time.Second)
		time.Sleep(time.Minute)
		must.Succeed(t, insertThird(t.Context(), db))
		must.Succeed(t, exec(db, "UPDATE shop SET word = 'changed' WHERE id = 1"))
		if n := count(t, replica); n != 2 {
			t.Errorf("the replica has %d rows at once", n)
		}
		time.Sleep(11 * time.Second)
		must.Succeed(t, exec(db, "DELETE FROM shop WHERE id = 2"))
		rows := get(replica.Read("SELECT word FROM shop ORDER BY id"))(t)
		if fmt.Sprint(rows) != "[[changed] [two] [three]]" {
			t.Errorf("the replica has %v", rows)
		}
	})
}

func TestPromotedReplicaLosesWhatItLacks(t *testing.T) {
	inBubble(t, func(t *testing.T, s *modeldb.Server, db *sql.DB, _ troubles) {
		address := modeldb.NewAddress(s)
		clients := address.Open()
		defer clients.Close()
		replica := s.Replica("replica", 10*time.Second)
		time.Sleep(time.Minute)
		must.Succeed(t, insertThird(t.Context(), db))
		address.Point(replica)
		if err := exec(clients, "DELETE FROM shop"); stateOf(err) != "25006" {
			t.Errorf("the replica answers %v to a write", err)
		}
		s.Demote()
		replica.Promote()
		if err := exec(db, "DELETE FROM shop"); err == nil {
			t.Error("the demoted server takes a write")
		}
		time.Sleep(time.Minute)
		must.Succeed(t, exec(clients, "INSERT INTO shop (id, word) VALUES (4, 'four')"))
		rows := get(replica.Read("SELECT id FROM shop ORDER BY id"))(t)
		if fmt.Sprint(rows) != "[[1] [2] [4]]" {
			t.Errorf("the new primary has %v", rows)
		}
	})
}

func TestUnknownStatementIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *modeldb.Server, db *sql.DB, _ troubles) {
		const statement = "MERGE INTO shop USING other ON TRUE WHEN MATCHED THEN DELETE"
		if err := exec(db, statement); stateOf(err) != "42601" {
			t.Errorf("the model answers %v", err)
		}
		if unknown := s.Unknown(); len(unknown) != 1 {
			t.Errorf("%d unknown statements: %q", len(unknown), unknown)
		}
	})
}
