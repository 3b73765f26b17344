package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

var rounds = flag.Int("rounds", 50, "how often each race is run")

// orders is the business of the tests: each transaction writes an order into this table.
func orders(t testing.TB, db *sql.DB) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
}

func message(id string) producer.Message {
	return producer.Message{ID: id, Exchange: "orders", RoutingKey: "order.paid", Body: []byte("paid " + id)}
}

func insertOrder(d sqlmarker.Dialect, id string) sqlmarker.Business {
	statement := "INSERT INTO orders (id) VALUES (?)"
	if d == sqlmarker.PostgreSQL {
		statement = "INSERT INTO orders (id) VALUES ($1)"
	}
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement, id)
		return err
	}
}

// orderIDs returns the committed orders.
func orderIDs(t testing.TB, db *sql.DB) map[string]bool {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT id FROM orders")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	ids := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids[id] = true
	}
	return ids
}

func final(t testing.TB, s *sqlmarker.Store, ids ...string) map[string]marker.Verdict {
	t.Helper()
	verdicts, err := s.Lookup(t.Context(), ids, true)
	if err != nil {
		t.Fatalf("the last question about %q: %v", ids, err)
	}
	return verdicts
}

func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func shortLocks(c *sqlmarker.Config) { c.LockTimeout = 100 * time.Millisecond }

func TestLateBusinessFailsAtTheTombstone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		orders(t, db)
		if v := final(t, s, "1001")["1001"]; v != marker.RolledBack {
			t.Fatalf("the last question is answered with %v", v)
		}
		err := s.InTx(message("1001"), insertOrder(d.dialect, "1001"))(t.Context())
		if !errors.Is(err, producer.ErrRolledBack) || !errors.Is(err, producer.ErrNotCommitted) {
			t.Errorf("the late business: %v", err)
		}
		if ids := orderIDs(t, db); len(ids) != 0 {
			t.Errorf("the late business left %v", ids)
		}
		if v := final(t, s, "1001")["1001"]; v != marker.RolledBack {
			t.Errorf("asked again: %v", v)
		}
	})
}

func TestARunningBusinessIsUnknown(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, shortLocks)
		tx := begin(t, db)
		if err := s.Mark(t.Context(), tx, "1001"); err != nil {
			t.Fatal(err)
		}
		got := final(t, s, "1001", "silent")
		if got["1001"].Definite() {
			t.Errorf("a running business is %v", got["1001"])
		}
		beside := marker.RolledBack
		if d.dialect == sqlmarker.SQLite { // has one writer, so no other transaction can plant a tombstone
			beside = marker.Unavailable
		}
		if got["silent"] != beside {
			t.Errorf("the marker beside it is %v, not %v", got["silent"], beside)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		got = final(t, s, "1001", "silent")
		if got["1001"] != marker.Committed || got["silent"] != marker.RolledBack {
			t.Errorf("afterwards: %v", got)
		}
	})
}

func TestCommittedBusinessDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		orders(t, db)
		run := s.InTx(message("1001"), insertOrder(d.dialect, "1001"))
		if err := run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context()); !errors.Is(err, producer.ErrAlreadyCommitted) {
			t.Errorf("the second run: %v", err)
		}
		if err := s.Delete(t.Context(), []string{"1001"}); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context()); !errors.Is(err, producer.ErrAlreadyCommitted) {
			t.Errorf("after DeleteBusiness: %v", err)
		}
		if v := final(t, s, "1001")["1001"]; v != marker.Committed {
			t.Errorf("a slow second owner hears %v", v)
		}
	})
}

func TestAFailedBusinessLeavesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		orders(t, db)
		declined := errors.New("card declined")
		err := s.InTx(message("1001"), func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(insertOrder(d.dialect, "1001")(ctx, tx), declined)
		})(t.Context())
		if !errors.Is(err, declined) || !errors.Is(err, producer.ErrNotCommitted) {
			t.Errorf("got %v", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = s.InTx(message("1002"), func(context.Context, *sql.Tx) error { panic("bug") })(t.Context())
		}()
		found, err := s.Lookup(t.Context(), []string{"1001", "1002"}, false)
		if err != nil || len(found) != 0 || len(orderIDs(t, db)) != 0 {
			t.Errorf("left: %v, %v", found, err)
		}
		if v := final(t, s, "1002")["1002"]; v != marker.RolledBack {
			t.Errorf("after a panic the transaction still holds the id: %v", v)
		}
	})
}

// The race of the last question with a business, in both orders: the answer and the database agree.
func TestCommitRacesTheLastQuestion(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		// Longer than a busy machine lets a business stand still.
		s := d.store(t, db, func(c *sqlmarker.Config) { c.LockTimeout = 10 * time.Second })
		orders(t, db)
		answers := map[string]marker.Verdict{}
		counts, unknown := map[string]int{}, 0
		for round := range *rounds {
			for _, first := range []string{"business", "question"} {
				id := fmt.Sprintf("%s-%d", first, round)
				business := insertOrder(d.dialect, id)
				if round%4 == 3 {
					business = func(context.Context, *sql.Tx) error { return errors.New("card declined") }
				}
				verdict, err := race(t, s, id, first == "question", business)
				undone := errors.Is(err, producer.ErrNotCommitted)
				if err == nil && verdict == marker.RolledBack || undone && verdict == marker.Committed {
					t.Fatalf("%s: answered %v, and the business returned %v", id, verdict, err)
				}
				if !verdict.Definite() {
					unknown++
				}
				answers[id] = verdict
				counts[first+" first: "+verdict.String()]++
			}
		}
		truth := orderIDs(t, db)
		for id, verdict := range answers {
			if verdict.Definite() && truth[id] != (verdict == marker.Committed) {
				t.Errorf("CONTRADICTION: %s was answered %v, committed is %v", id, verdict, truth[id])
			}
		}
		if unknown > len(answers)/10 {
			t.Errorf("%d of %d were UNKNOWN, and there was no race", unknown, len(answers))
		}
		t.Logf("%d races each way, answers %v", *rounds, counts)
	})
}

// race runs a business that is open while the last question is asked, or asks just before the business.
func race(
	t *testing.T, s *sqlmarker.Store, id string, questionFirst bool, run sqlmarker.Business,
) (verdict marker.Verdict, err error) {
	marked, asking := make(chan struct{}), make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		if questionFirst {
			<-asking
		}
		err = s.InTx(message(id), func(ctx context.Context, tx *sql.Tx) error {
			close(marked)
			<-asking
			held := time.NewTimer(rand.N(3 * time.Millisecond))
			<-held.C
			return run(ctx, tx)
		})(t.Context())
	})
	both.Go(func() {
		if !questionFirst {
			<-marked
		}
		close(asking)
		verdict = final(t, s, id)[id]
	})
	both.Wait()
	return verdict, err
}

// Ids with a verdict are answered, though so many others are held that the time ends before all were tried. An id
// without a lookup is Unavailable.
func TestHeldIdsDelayNoVerdict(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		if _, err := s.Put(t.Context(), []string{"stands"}, marker.Committed); err != nil {
			t.Fatal(err)
		}
		slow := begin(t, db)
		defer func() { _ = slow.Rollback() }()
		ids := []string{"stands", "gone"}
		for i := range 64 { // eight at a time have a second each
			ids = append(ids, fmt.Sprint("held-", i))
			if err := s.Mark(t.Context(), slow, ids[len(ids)-1]); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		found, err := s.Lookup(ctx, ids, true)
		if err != nil || found["stands"] != marker.Committed {
			t.Fatalf("the standing marker: %v, %v", found["stands"], err)
		}
		if v, said := found["gone"]; !said || v == marker.Committed {
			t.Errorf("the id without a transaction: %v, said %v", v, said)
		}
	})
}
