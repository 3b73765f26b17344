package sql_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

func nothing(context.Context, *sql.Tx) error { return nil }

// enqueue commits messages, many in a transaction.
func enqueue(t testing.TB, db *sql.DB, s *sqlmarker.Store, ids ...string) {
	t.Helper()
	tx := begin(t, db)
	for _, id := range ids {
		if err := s.Enqueue(t.Context(), tx, message(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// claimed are messages of a claim, with their content.
type claimed struct {
	Token    string
	Messages []sqlmarker.Queued
}

func claim(t testing.TB, s *sqlmarker.Store, limit int, lock time.Duration) claimed {
	t.Helper()
	c, err := s.Claim(t.Context(), sqlmarker.ClaimRequest{Owner: "relay", Limit: limit, Lock: lock})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := s.Load(t.Context(), c.Token, c.Messages)
	if err != nil {
		t.Fatal(err)
	}
	return claimed{c.Token, loaded}
}

func release(t testing.TB, s *sqlmarker.Store, token string, outcomes ...sqlmarker.Outcome) int64 {
	t.Helper()
	held, err := s.Release(t.Context(), token, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func counts(t testing.TB, s *sqlmarker.Store) sqlmarker.Counts {
	t.Helper()
	c, err := s.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Oldest = 0
	return c
}

func TestClaimReturnsTheEnqueuedMessage(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		all := []producer.Message{
			{
				ID: "full", Broker: "events", Exchange: "orders", RoutingKey: "größe.é", ContentType: "application/json",
				Headers: map[string]string{"k": "v\x00'\"\\"}, Body: []byte{0, 1, 255, '\''}, Delay: time.Minute,
			},
			{ID: "empty", Body: []byte{}},
		}
		for _, m := range all {
			if err := s.Commit(t.Context(), m, nothing); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-s.Queued():
		default:
			t.Error("the commit signals no relay")
		}
		got := claim(t, s, 10, time.Minute)
		if len(got.Messages) != 2 {
			t.Fatalf("claimed %v", got.Messages)
		}
		for _, q := range got.Messages {
			want := all[0]
			if q.Message.ID == "empty" {
				want = all[1]
			}
			diff := cmp.Diff(want, q.Message, cmpopts.EquateEmpty())
			if diff != "" || q.Claims != 1 || q.Attempts != 0 || q.Unreadable != nil {
				t.Errorf("%+v: %s", q, diff)
			}
		}
		found, err := s.Lookup(t.Context(), []string{"full", "empty"}, false)
		if err != nil || found["full"] != marker.Committed || found["empty"] != marker.Committed {
			t.Errorf("they are markers as well: %v, %v", found, err)
		}
	})
}

// A message is sent unchanged, or its business does not commit.
func TestUnstorableMessageIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		const broken = "gr\xf6\xdfe"
		for field, m := range map[string]producer.Message{
			"exchange":     {ID: "1", Exchange: broken},
			"routing key":  {ID: "1", RoutingKey: broken},
			"broker":       {ID: "1", Broker: broken},
			"content type": {ID: "1", ContentType: broken},
			"header":       {ID: "1", Headers: map[string]string{"size": broken}},
			"its name":     {ID: "1", Headers: map[string]string{broken: "L"}},
		} {
			if err := s.Commit(t.Context(), m, nothing); !errors.Is(err, producer.ErrNotCommitted) {
				t.Errorf("%s: %v", field, err)
			}
		}
		if got := counts(t, s); got != (sqlmarker.Counts{}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestClaimIsExclusiveUntilLockEnds(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		enqueue(t, db, s, "1", "2", "3")
		dead := claim(t, s, 2, 3*time.Second) // a busy machine takes a second for the next claim
		alive := claim(t, s, 10, time.Minute)
		if len(dead.Messages) != 2 || len(alive.Messages) != 1 {
			t.Fatalf("claimed %d and %d of 3", len(dead.Messages), len(alive.Messages))
		}
		var taken claimed
		servers.Eventually(t, 30*time.Second, "the dead relay's rows", func() bool {
			taken = claim(t, s, 10, time.Minute)
			return len(taken.Messages) > 0
		})
		for _, q := range taken.Messages {
			if q.Claims != 2 {
				t.Errorf("%s was claimed %d times", q.Message.ID, q.Claims)
			}
			o := sqlmarker.Outcome{ID: q.Message.ID, State: sqlmarker.StateSent}
			if held := release(t, s, dead.Token, o); held != 0 {
				t.Error("the dead relay still releases")
			}
			if held := release(t, s, taken.Token, o); held != 1 {
				t.Error("the new owner does not release")
			}
		}
		if got := counts(t, s); got != (sqlmarker.Counts{Backlog: sqlmarker.Backlog{Waiting: 1}, Sent: 2}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestConcurrentClaimsAreDisjoint(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, func(c *sqlmarker.Config) { c.LockTimeout = 20 * time.Second })
		const all = 1000
		ids := make([]string, all)
		for i := range ids {
			ids[i] = fmt.Sprint(i)
		}
		enqueue(t, db, s, ids...)
		var mu sync.Mutex
		times := map[string]int{}
		var relays sync.WaitGroup
		for range 8 {
			relays.Go(func() {
				for {
					c, err := s.Claim(t.Context(), sqlmarker.ClaimRequest{Owner: "relay", Limit: 37, Lock: time.Minute})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, m := range c.Messages {
						times[m.ID]++
					}
					done := len(times) == all
					mu.Unlock()
					if done {
						return
					}
				}
			})
		}
		relays.Wait()
		for id, n := range times {
			if n != 1 {
				t.Errorf("%s was claimed %d times", id, n)
			}
		}
	})
}

func TestFailedMessagesAreRetriedOnRequest(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		enqueue(t, db, s, "1", "2")
		c := claim(t, s, 10, time.Minute)
		long := strings.Repeat("é", 2000) + "\xff\x00"
		release(
			t, s, c.Token,
			sqlmarker.Outcome{ID: "1", State: sqlmarker.StateFailed, Refused: true, Error: long},
			sqlmarker.Outcome{ID: "2", State: sqlmarker.StateWaiting, In: time.Hour, Refused: true, Error: "nack"},
		)
		if got := claim(t, s, 10, time.Minute); len(got.Messages) != 0 {
			t.Errorf("claimed %v before their time", got.Messages)
		}
		failures, err := s.Failures(t.Context(), 10)
		if err != nil || len(failures) != 1 || failures[0].ID != "1" || failures[0].Attempts != 1 ||
			utf8.RuneCountInString(failures[0].Error) != 1000 {
			t.Errorf("failed: %+v, %v", failures, err)
		}
		if n, err := s.Retry(t.Context(), "1", "2", "3"); n != 1 || err != nil {
			t.Errorf("retried %d, %v", n, err)
		}
		again := claim(t, s, 10, time.Minute)
		if len(again.Messages) != 1 || again.Messages[0].Attempts != 0 || again.Messages[0].Claims != 2 {
			t.Errorf("after the retry: %+v", again.Messages)
		}
	})
}

func TestDeletedMarkerIsNotSentAgain(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, func(c *sqlmarker.Config) { c.Resend = time.Millisecond })
		for _, id := range []string{"let go", "forgotten"} {
			if err := s.InTx(message(id), nothing)(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Delete(t.Context(), []string{"let go"}); err != nil {
			t.Fatal(err)
		}
		var c claimed
		servers.Eventually(t, 10*time.Second, "the forgotten message", func() bool {
			c = claim(t, s, 10, time.Minute)
			return len(c.Messages) > 0
		})
		if len(c.Messages) != 1 || c.Messages[0].Message.ID != "forgotten" {
			t.Fatalf("claimed %+v", c.Messages)
		}
		// The marker is deleted while a relay holds the message.
		if err := s.Delete(t.Context(), []string{"forgotten"}); err != nil {
			t.Fatal(err)
		}
		if held := release(t, s, c.Token, sqlmarker.Outcome{ID: "forgotten", State: sqlmarker.StateHanded}); held != 0 {
			t.Error("the relay overwrote the coordinator's outcome")
		}
		if got := counts(t, s); got != (sqlmarker.Counts{Sent: 2}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestPurgeRemovesOnlyFinishedRows(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)     // keeps for a week
		done := make([]string, 2500) // more than two slices
		for i := range done {
			done[i] = fmt.Sprint("done-", i)
		}
		if _, err := s.Put(t.Context(), done, marker.Committed); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), []string{"asked for"}, marker.Committed); err != nil {
			t.Fatal(err)
		}
		enqueue(t, db, s, "waiting", "failed")
		if n, err := s.MarkFailed(t.Context(), "given up", "failed"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		final(t, s, "tombstone")
		if err := s.Delete(t.Context(), done); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Purge(t.Context()); n != 0 || err != nil {
			t.Errorf("purged %d before their time, %v", n, err)
		}
		s = d.store(t, db, func(c *sqlmarker.Config) { c.Retention = time.Second })
		var removed int64
		servers.Eventually(t, 30*time.Second, "the purge of 2,501 rows", func() bool {
			n, err := s.Purge(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			removed += n
			return removed >= 2501
		})
		found, err := s.Lookup(t.Context(), []string{"done-1", "asked for", "waiting", "failed", "tombstone"}, false)
		if err != nil || removed != 2501 || len(found) != 3 || !found["asked for"].Definite() ||
			!found["waiting"].Definite() || !found["failed"].Definite() {
			t.Errorf("removed %d, left %v, %v", removed, found, err)
		}
	})
}

// A table without calls of Purge loses its old rows at the calls of DeleteBusiness, some at each call.
func TestDeleteRemovesOldMarkers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		kept := d.store(t, db, func(c *sqlmarker.Config) { c.NoPurge = true })
		var old []string
		for i := range 500 {
			old = append(old, fmt.Sprint("old-", i))
		}
		if _, err := kept.Put(t.Context(), append(old, "1", "2", "3"), marker.Committed); err != nil {
			t.Fatal(err)
		}
		if err := kept.Delete(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "UPDATE msghandler_markers SET cleaned_at = 0 "+
			"WHERE cleaned_at IS NOT NULL"); err != nil {
			t.Fatal(err)
		}
		left := func() (n int) {
			if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM msghandler_markers").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		purges := d.store(t, db, nil)
		for call, want := range []int{503, 303, 103, 3} {
			s := purges
			if call == 0 {
				s = kept
			}
			if err := s.Delete(t.Context(), []string{fmt.Sprint(call)}); err != nil {
				t.Fatal(err)
			}
			if n := left(); n != want {
				t.Errorf("after call %d %d rows are left, want %d", call, n, want)
			}
		}
	})
}

// DeleteBusiness has succeeded also where old rows cannot be removed. The log says why.
func TestFailedPurgeOfDeleteIsLogged(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		if d.dialect != sqlmarker.SQLite { // the code is the same for all
			return
		}
		var log bytes.Buffer
		db := d.open(t)
		s := d.store(t, db, func(c *sqlmarker.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		if _, err := s.Put(t.Context(), []string{"old", "1"}, marker.Committed); err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"UPDATE msghandler_markers SET cleaned_at = 0 WHERE id = CAST('old' AS BLOB)",
			"CREATE TRIGGER kept BEFORE DELETE ON msghandler_markers BEGIN SELECT RAISE(ABORT, 'no row leaves'); END",
		} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // after an error nothing is removed for a minute
			if err := s.Delete(t.Context(), []string{"1"}); err != nil {
				t.Error(err)
			}
		}
		if said := log.String(); strings.Count(said, "old rows of the markers not removed") != 1 ||
			!strings.Contains(said, "no row leaves") {
			t.Errorf("the log has %q", said)
		}
	})
}

// So are sent messages.
func TestDeletedMarkerIsKeptForWeek(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		if _, err := s.Put(t.Context(), []string{"1"}, marker.Committed); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), []string{"1"}); err != nil {
			t.Fatal(err)
		}
		enqueue(t, db, s, "sent by a relay", "sent by another program")
		c := claim(t, s, 1, time.Minute)
		sent := sqlmarker.Outcome{ID: c.Messages[0].Message.ID, State: sqlmarker.StateSent}
		if held := release(t, s, c.Token, sent); held != 1 {
			t.Fatal(held)
		}
		if n, err := s.MarkSent(t.Context(), "sent by another program"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		const hour = 3_600_000
		for _, later := range []struct{ hours, purged int64 }{{7*24 - 1, 0}, {2, 3}} {
			_, err := db.ExecContext(t.Context(),
				fmt.Sprintf("UPDATE msghandler_markers SET cleaned_at = cleaned_at - %d", later.hours*hour))
			if err != nil {
				t.Fatal(err)
			}
			if n, err := s.Purge(t.Context()); n != later.purged || err != nil {
				t.Errorf("%d hours later %d were purged, want %d: %v", later.hours, n, later.purged, err)
			}
		}
	})
}

func TestCommitIsAllOrNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		orders(t, db)
		declined := errors.New("card declined")
		err := s.Commit(t.Context(), message("1"), func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(insertOrder(d.dialect, "1")(ctx, tx), declined)
		})
		if !errors.Is(err, declined) || len(orderIDs(t, db)) != 0 || counts(t, s) != (sqlmarker.Counts{}) {
			t.Errorf("%v left %v and %+v", err, orderIDs(t, db), counts(t, s))
		}
		if err := s.Commit(t.Context(), message("1"), insertOrder(d.dialect, "1")); err != nil {
			t.Fatal(err)
		}
		err = s.Commit(t.Context(), message("1"), insertOrder(d.dialect, "2"))
		if !errors.Is(err, producer.ErrAlreadyCommitted) || len(orderIDs(t, db)) != 1 {
			t.Errorf("the second: %v, %v", err, orderIDs(t, db))
		}
	})
}

func TestDDLEqualsMigrate(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: d.dialect, Producer: "orders", Table: "our_markers"})
		if err != nil {
			t.Fatal(err)
		}
		statements, err := s.DDL()
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range statements {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := s.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		enqueue(t, db, s, "1")
		if got := counts(t, s); got.Waiting != 1 {
			t.Errorf("%+v", got)
		}
	})
}
