// Package upgrade_test tests that tables of the version before are upgraded in place, while programs of that version
// use them.
package upgrade_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/producer/marker"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/producer/outbox/databases"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

// store is a store of this version, not migrated yet.
func store(t *testing.T, d databases.Database, db *sql.DB) *sqlmarker.Store {
	t.Helper()
	s, err := sqlmarker.New(sqlmarker.Config{
		DB: db, Dialect: d.Dialect, Producer: "orders", LockTimeout: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func relay(t *testing.T, table outbox.Table, to outbox.Sender) *outbox.Relay {
	t.Helper()
	r, err := outbox.New(outbox.Config{
		Table: table, Sender: to, Interval: 20 * time.Millisecond, Batch: 20, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// populate fills a table of the version before with a row of each kind.
func populate(t *testing.T, o *old) {
	t.Helper()
	for _, id := range []string{"waiting", "delayed", "handed", "sent", "failed", "deleted"} {
		if err := o.enqueue(t.Context(), databases.Message(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.mark(t.Context(), "marker"); err != nil {
		t.Fatal(err)
	}
	c, err := o.Claim(t.Context(), "old", 10, time.Minute)
	if err != nil || len(c.Messages) != 6 {
		t.Fatalf("claimed %d: %v", len(c.Messages), err)
	}
	held, err := o.Release(t.Context(), c.Token, []sqlmarker.Outcome{
		{ID: "waiting", State: sqlmarker.StateWaiting},
		{ID: "delayed", State: sqlmarker.StateWaiting, In: time.Hour},
		{ID: "handed", State: sqlmarker.StateHanded, In: time.Hour},
		{ID: "sent", State: sqlmarker.StateSent},
		{ID: "failed", State: sqlmarker.StateFailed},
	})
	if err != nil || held != 5 {
		t.Fatalf("released %d: %v", held, err)
	}
	if err := o.deleteBusiness(t.Context(), "deleted"); err != nil {
		t.Fatal(err)
	}
}

// rowsOf returns the columns that both versions know, by id.
func rowsOf(t *testing.T, db *sql.DB) map[string]string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT id, verdict, created_at, COALESCE(cleaned_at, 0), state,
		COALESCE(due_at, 0), COALESCE(owner, ''), claims, attempts, COALESCE(message, ''), COALESCE(body, '')
		FROM msghandler_markers`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := map[string]string{}
	for rows.Next() {
		var id, owner, message, body []byte
		var n [7]int64
		err := rows.Scan(&id, &n[0], &n[1], &n[2], &n[3], &n[4], &owner, &n[5], &n[6], &message, &body)
		if err != nil {
			t.Fatal(err)
		}
		all[string(id)] = fmt.Sprintf("%v %s %s %s", n, owner, message, body)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestMigrationChangesNoRow(t *testing.T) {
	t.Parallel()
	databases.OnEach(t, func(t *testing.T, d databases.Database) {
		db := d.Open(t)
		o := createOld(t, d, db)
		populate(t, o)
		before := rowsOf(t, db)
		s := store(t, d, db)
		for range 2 { // the second time there is nothing to do
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(before, rowsOf(t, db)); diff != "" || len(before) != 7 {
			t.Errorf("%d rows, and the migration changed them: %s", len(before), diff)
		}
		counts, err := s.CountsByStatus(t.Context())
		want := map[sqlmarker.Status]int64{
			sqlmarker.StatusNew: 0, sqlmarker.StatusRetry: 2, sqlmarker.StatusHanded: 1, sqlmarker.StatusSent: 2,
			sqlmarker.StatusFailed: 1,
		}
		if err != nil || !maps.Equal(counts, want) {
			t.Errorf("%v, %v", counts, err)
		}
		verdicts, err := s.Lookup(t.Context(), []string{"marker", "sent"}, true)
		if err != nil || verdicts["marker"] != marker.Committed || verdicts["sent"] != marker.Committed {
			t.Errorf("%v, %v", verdicts, err)
		}
		var named int
		err = db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM msghandler_markers
			WHERE exchange_name = 'orders' AND routing_key = 'order.paid'`).Scan(&named)
		if err != nil || named != 4 {
			t.Errorf("%d messages got their columns, want the 4 that are unsent: %v", named, err)
		}
		if err := o.migrate(t.Context()); err != nil {
			t.Errorf("a program of the version before that starts again: %v", err)
		}
		got, err := s.Claim(t.Context(), "new", 10, time.Minute)
		if err != nil || len(got.Messages) != 1 || got.Messages[0].Claims != 2 || got.Messages[0].Attempts != 1 ||
			cmp.Diff(databases.Message("waiting"), got.Messages[0].Message) != "" {
			t.Errorf("claimed %+v, %v", got.Messages, err)
		}
	})
}

// Relays and producers of both versions run during the migration and after it.
func TestRelaysOfBothVersionsRunSideBySide(t *testing.T) {
	t.Parallel()
	databases.OnEach(t, func(t *testing.T, d databases.Database) {
		db := d.Open(t)
		o := createOld(t, d, db)
		const each = 200
		to, byOld := &databases.Recorder{}, &databases.Recorder{}
		for _, id := range databases.Numbered("before", each) {
			if err := o.enqueue(t.Context(), databases.Message(id)); err != nil {
				t.Fatal(err)
			}
		}
		claimedBefore, err := o.Claim(t.Context(), "old", 10, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		databases.Run(t, relay(t, o, byOld))
		var enqueuing sync.WaitGroup
		enqueuing.Go(func() {
			for _, id := range databases.Numbered("old", each) {
				if err := o.enqueue(t.Context(), databases.Message(id)); err != nil {
					t.Errorf("a producer of the version before: %v", err)
				}
			}
		})
		s := store(t, d, db)
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if held, err := o.Release(t.Context(), claimedBefore.Token, waiting(claimedBefore)); held != 10 || err != nil {
			t.Errorf("a claim from before the migration: %d released, %v", held, err)
		}
		databases.Run(t, relay(t, s, to))
		for _, id := range databases.Numbered("new", each) {
			if err := s.Commit(t.Context(), databases.Message(id), nothing); err != nil {
				t.Fatal(err)
			}
		}
		enqueuing.Wait()
		servers.Eventually(t, time.Minute, "all to be sent", func() bool {
			c, err := s.Counts(t.Context())
			return err == nil && c.Sent == 3*each
		})
		checkBooks(t, claimedBefore, byOld, to)
	})
}

func waiting(c sqlmarker.Claim) (outcomes []sqlmarker.Outcome) {
	for _, q := range c.Messages {
		outcomes = append(outcomes, sqlmarker.Outcome{ID: q.Message.ID, State: sqlmarker.StateWaiting})
	}
	return outcomes
}

// checkBooks demands that each message was sent once, unchanged, and that both versions sent some of the other's.
func checkBooks(t *testing.T, before sqlmarker.Claim, byOld, byNew *databases.Recorder) {
	t.Helper()
	twice := map[string]bool{}
	for _, q := range before.Messages {
		twice[q.Message.ID] = true
	}
	crossed := map[string]int{}
	for _, kind := range []string{"before", "old", "new"} {
		for _, id := range databases.Numbered(kind, 200) {
			sent := slices.Concat(byOld.Of(id), byNew.Of(id))
			claims := 1
			if twice[id] {
				claims = 2
			}
			if len(sent) != 1 || sent[0].Claims != claims || cmp.Diff(databases.Message(id), sent[0].Message) != "" {
				t.Errorf("%s was sent as %+v", id, sent)
			}
			if kind == "new" && len(byOld.Of(id)) > 0 || kind == "old" && len(byNew.Of(id)) > 0 {
				crossed[kind]++
			}
		}
	}
	t.Logf("messages of this version sent by the version before: %d; the other way round: %d",
		crossed["new"], crossed["old"])
}

func nothing(context.Context, *sql.Tx) error { return nil }

// The claims of each version keep the other version off, until they end.
func TestClaimsOfBothVersionsExcludeEachOther(t *testing.T) {
	t.Parallel()
	databases.OnEach(t, func(t *testing.T, d databases.Database) {
		db := d.Open(t)
		o, s := createOld(t, d, db), store(t, d, db)
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, tables := range [][2]outbox.Table{{o, s}, {s, o}} {
			id := fmt.Sprint("message-", i)
			if err := o.enqueue(t.Context(), databases.Message(id)); err != nil {
				t.Fatal(err)
			}
			first, err := tables[0].Claim(t.Context(), "first", 10, time.Second)
			if err != nil || len(first.Messages) != 1 {
				t.Fatalf("claimed %+v, %v", first, err)
			}
			second, err := tables[1].Claim(t.Context(), "second", 10, time.Minute)
			if err != nil || len(second.Messages) != 0 {
				t.Errorf("case %d: claimed %+v during the other's claim, %v", i, second, err)
			}
			servers.Eventually(t, 30*time.Second, "the end of the first claim", func() bool {
				second, err = tables[1].Claim(t.Context(), "second", 10, time.Minute)
				return err == nil && len(second.Messages) == 1
			})
			sent := []sqlmarker.Outcome{{ID: id, State: sqlmarker.StateSent}}
			if held, err := tables[0].Release(t.Context(), first.Token, sent); held != 0 || err != nil {
				t.Errorf("case %d: the first released %d after its end, %v", i, held, err)
			}
			if held, err := tables[1].Release(t.Context(), second.Token, sent); held != 1 || err != nil {
				t.Errorf("case %d: the second released %d, %v", i, held, err)
			}
		}
	})
}
