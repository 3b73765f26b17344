package sql_test

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/msghandler/msghandler/consumer/envelope"
	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

func idsOf(messages []sqlmarker.Queued) (ids []string) {
	for _, q := range messages {
		ids = append(ids, q.Message.ID)
	}
	return ids
}

func statuses(t *testing.T, s *sqlmarker.Store) map[sqlmarker.Status]int64 {
	t.Helper()
	counts, err := s.CountsByStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(counts, func(_ sqlmarker.Status, n int64) bool { return n == 0 })
	return counts
}

// A relay of one's own needs these calls only.
func TestOwnRelayReadsAndMarksRows(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		if err := s.InTx(message("a marker alone"), nothing)(t.Context()); err != nil {
			t.Fatal(err)
		}
		enqueue(t, db, s, "c", "a", "b", "d")
		pending, err := s.Pending(t.Context(), 3)
		if err != nil || !slices.Equal(idsOf(pending), []string{"a", "b", "c"}) || pending[0].Claims != 0 ||
			cmp.Diff(message("a"), pending[0].Message) != "" {
			t.Fatalf("%+v, %v", pending, err)
		}
		if n, err := s.MarkSent(t.Context(), "a", "a", "unknown", "a marker alone"); n != 1 || err != nil {
			t.Errorf("marked %d as sent, %v", n, err)
		}
		for want := 1; want <= 2; want++ {
			if n, err := s.IncrementAttempts(t.Context(), "b", time.Hour, "no such queue"); n != want || err != nil {
				t.Errorf("%d attempts, want %d: %v", n, want, err)
			}
		}
		if n, err := s.IncrementAttempts(t.Context(), "a", 0, "too late"); n != 0 || err != nil {
			t.Errorf("a sent message has %d attempts, %v", n, err)
		}
		if n, err := s.MarkFailed(t.Context(), "no such queue", "c", "a"); n != 1 || err != nil {
			t.Errorf("marked %d as failed, %v", n, err)
		}
		want := map[sqlmarker.Status]int64{
			sqlmarker.StatusSent: 1, sqlmarker.StatusRetry: 1, sqlmarker.StatusFailed: 1, sqlmarker.StatusNew: 1,
		}
		if got := statuses(t, s); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if pending, err = s.Pending(t.Context(), 10); err != nil || !slices.Equal(idsOf(pending), []string{"d"}) {
			t.Errorf("pending are %v, %v", idsOf(pending), err)
		}
		failures, err := s.Failures(t.Context(), 10)
		if err != nil || len(failures) != 1 || failures[0].ID != "c" || failures[0].Error != "no such queue" {
			t.Errorf("%+v, %v", failures, err)
		}
	})
}

// A call by id ends the claim of a relay, which then records nothing.
func TestMarkSentEndsTheClaim(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		enqueue(t, db, s, "1", "2", "3")
		c := claim(t, s, 10, time.Minute)
		if pending, err := s.Pending(t.Context(), 10); err != nil || len(pending) != 0 {
			t.Errorf("a relay's messages are pending: %v, %v", idsOf(pending), err)
		}
		if _, err := s.MarkSent(t.Context(), "1"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.MarkFailed(t.Context(), "given up", "2"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.IncrementAttempts(t.Context(), "3", 0, "refused"); err != nil {
			t.Fatal(err)
		}
		for _, q := range c.Messages {
			o := sqlmarker.Outcome{ID: q.Message.ID, State: sqlmarker.StateWaiting}
			if held := release(t, s, c.Token, o); held != 0 {
				t.Errorf("the relay still holds %s", q.Message.ID)
			}
		}
		want := map[sqlmarker.Status]int64{sqlmarker.StatusSent: 1, sqlmarker.StatusRetry: 1, sqlmarker.StatusFailed: 1}
		if got := statuses(t, s); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

func TestStatusIsStateAsWord(t *testing.T) {
	t.Parallel()
	for want, of := range map[sqlmarker.Status]struct {
		state    sqlmarker.State
		attempts int
	}{
		"NEW": {sqlmarker.StateWaiting, 0}, "RETRY": {sqlmarker.StateWaiting, 1}, "HANDED": {sqlmarker.StateHanded, 0},
		"SENT": {sqlmarker.StateSent, 3}, "FAILED": {sqlmarker.StateFailed, 4}, "": {sqlmarker.StateNone, 0},
	} {
		if got := sqlmarker.StatusOf(of.state, of.attempts); got != want {
			t.Errorf("state %d after %d refusals is %q, want %q", of.state, of.attempts, got, want)
		}
	}
}

// Of the messages that are due, a claim takes those with the lowest ids, however they became due.
func TestClaimTakesDueMessagesByID(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		enqueue(t, db, s, "e", "c", "a", "f")
		enqueue(t, db, s, "b", "d")
		if n, err := s.IncrementAttempts(t.Context(), "a", 0, "refused: it is due after all others"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		for _, want := range [][]string{{"a", "b"}, {"c", "d", "e"}, {"f"}, nil} {
			got := idsOf(claim(t, s, max(len(want), 1), time.Minute).Messages)
			if !slices.Equal(got, want) {
				t.Errorf("claimed %q, want %q", got, want)
			}
		}
	})
}

// In a backlog, every fifth claim takes the messages that have been due longest.
func TestLongBacklogStarvesNoMessage(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		enqueue(t, db, s, "z")
		statement := "UPDATE msghandler_markers SET due_at = due_at - 60000"
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		var many []string
		for i := range 60 {
			many = append(many, fmt.Sprintf("a-%02d", i))
		}
		enqueue(t, db, s, many...)
		for n := 1; ; n++ {
			got := idsOf(claim(t, s, 2, time.Minute).Messages)
			if slices.Contains(got, "z") {
				t.Logf("claimed with claim %d", n)
				break
			}
			if n > 10 {
				t.Fatalf("the message due longest was not claimed %d times", n)
			}
		}
	})
}

// A claim finds messages in a long backlog while other relays are claiming those that have been due longest.
func TestClaimIsNeverEmptyInBacklog(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		if d.dialect == sqlmarker.SQLite {
			return // one transaction writes at a time: no claim meets another
		}
		db := d.open(t)
		s := d.store(t, db, nil)
		var all []string
		for i := range 60 {
			all = append(all, fmt.Sprintf("order-%02d", i))
		}
		enqueue(t, db, s, all...)
		other := begin(t, db)
		rows, err := other.QueryContext(t.Context(),
			"SELECT id FROM msghandler_markers WHERE producer = 'orders' AND id IN ('order-00', 'order-01') FOR UPDATE")
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() { // the rows are locked as they are read
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
		for n := range 2 * 5 {
			if got := claim(t, s, 2, time.Minute).Messages; len(got) != 2 {
				t.Errorf("claim %d has %d messages", n+1, len(got))
			}
		}
		if err := other.Rollback(); err != nil {
			t.Fatal(err)
		}
	})
}

// stateOf returns columns of a message's row as a text.
func (d database) stateOf(t *testing.T, id, columns string) string {
	t.Helper()
	db := d.open(t)
	rows, err := db.QueryContext(t.Context(), "SELECT "+columns+" FROM msghandler_markers")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		var key []byte
		values := make([]any, strings.Count(columns, ",")+1)
		texts := make([]*string, len(values))
		for i := range values {
			values[i] = &texts[i]
		}
		values[0] = &key
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		if string(key) != id {
			continue
		}
		for _, text := range texts[1:] {
			if text == nil {
				found = append(found, "-")
			} else {
				found = append(found, *text)
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(found, " ")
}

func TestRowHasColumnsOfItsOwn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, func(c *sqlmarker.Config) { c.Shards = 16 })
		body, err := envelope.Marshal(envelope.Event[string]{
			ID: "1", Type: "ORDER_PAID", AggregateType: "order", AggregateID: "1001", Payload: "paid",
		})
		if err != nil {
			t.Fatal(err)
		}
		m := producer.Message{
			ID: "1", Exchange: "orders", RoutingKey: "order.paid", ContentType: envelope.ContentType, Body: body,
		}
		if err := s.Commit(t.Context(), m, nothing); err != nil {
			t.Fatal(err)
		}
		const names = "id, exchange_name, routing_key, event_type, aggregate_type, aggregate_id"
		if got := d.stateOf(t, "1", names); got != "orders order.paid ORDER_PAID order 1001" {
			t.Errorf("%q", got)
		}
		want := fmt.Sprint(sqlmarker.ShardOf("1001", 16), " - - - 1")
		const times = "id, shard_id, lock_time, lock_until, sent_at, CASE WHEN updated_at >= created_at THEN 1 ELSE 0 END"
		if got := d.stateOf(t, "1", times); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		c := claim(t, s, 1, time.Minute)
		const locked = "id, lock_until - lock_time, CASE WHEN due_at = lock_until THEN 1 ELSE 0 END"
		if got := d.stateOf(t, "1", locked); got != "60000 1" {
			t.Errorf("during a claim %q", got)
		}
		release(t, s, c.Token, sqlmarker.Outcome{ID: "1", Shard: c.Messages[0].Shard, State: sqlmarker.StateSent})
		const sent = "id, lock_time, lock_until, CASE WHEN sent_at >= created_at THEN 1 ELSE 0 END"
		if got := d.stateOf(t, "1", sent); got != "- - 1" {
			t.Errorf("once the message is sent %q", got)
		}
	})
}

// An operator corrects the columns of a message that failed; Retry sends it there. Names that no column can hold are
// sent as they are.
func TestRelaySendsToTheColumns(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		odd := producer.Message{
			ID: "odd", Exchange: strings.Repeat("x", 300), RoutingKey: "a\x00b", ContentType: "application/json",
			Body: []byte(`{"eventType":"` + strings.Repeat("x", 300) + `","aggregateId":"a\u0000b"}`),
		}
		if err := s.Commit(t.Context(), odd, nothing); err != nil {
			t.Fatal(err)
		}
		enqueue(t, db, s, "1")
		statement := "UPDATE msghandler_markers SET exchange_name = '', routing_key = 'mended' WHERE exchange_name = 'orders'"
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		for _, q := range claim(t, s, 10, time.Minute).Messages {
			want := odd
			if q.Message.ID == "1" {
				want = message("1")
				want.Exchange, want.RoutingKey = "", "mended"
			}
			if diff := cmp.Diff(want, q.Message); diff != "" {
				t.Errorf("%s: %s", q.Message.ID, diff)
			}
		}
	})
}

// A trigger keeps a row as it is, so the UPDATE of a claim counts fewer rows than its SELECT chose.
func TestShortClaimIsLogged(t *testing.T) {
	t.Parallel()
	there := servers.PostgreSQL(t)
	d := database{sqlmarker.PostgreSQL, there.Driver, there.DSN}
	db := d.open(t)
	var text bytes.Buffer
	s := d.store(t, db, func(c *sqlmarker.Config) { c.Logger = slog.New(slog.NewTextHandler(&text, nil)) })
	enqueue(t, db, s, "1", "2", "3")
	for _, statement := range []string{
		`CREATE FUNCTION keep() RETURNS trigger AS $$ BEGIN RETURN NULL; END $$ LANGUAGE plpgsql`,
		`CREATE TRIGGER keep BEFORE UPDATE ON msghandler_markers FOR EACH ROW WHEN (OLD.id = '2') EXECUTE FUNCTION keep()`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if got := idsOf(claim(t, s, 10, time.Minute).Messages); !slices.Equal(got, []string{"1", "3"}) {
		t.Errorf("claimed %q", got)
	}
	said := text.String()
	if !strings.Contains(said, "level=WARN") || !strings.Contains(said, "chosen=3 claimed=2") {
		t.Errorf("a claim of 2 of 3 chosen messages says %q", said)
	}
}

// The UPDATE of a claim repeats the conditions of its SELECT: rows that change in between are not claimed. On SQLite
// the claim is one statement.
func TestClaimRepeatsItsConditions(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		if d.dialect == sqlmarker.SQLite {
			return
		}
		db, l := d.openLossy(t)
		s := d.store(t, db, func(c *sqlmarker.Config) { c.Logger = slog.New(slog.DiscardHandler) })
		enqueue(t, db, s, "free", "locked", "moved", "sent")
		change := func(conn driver.ExecerContext, statement string) {
			if !strings.Contains(statement, "SET owner = ") {
				return
			}
			l.onExec.Store(nil)
			for _, set := range []string{
				"lock_until = due_at + 3600000 WHERE id = 'locked'", "shard_id = 1 WHERE id = 'moved'",
				"state = 3 WHERE id = 'sent'",
			} {
				if _, err := conn.ExecContext(t.Context(), "UPDATE msghandler_markers SET "+set, nil); err != nil {
					t.Error(err)
				}
			}
		}
		l.onExec.Store(&change)
		if got := idsOf(claim(t, s, 10, time.Minute).Messages); !slices.Equal(got, []string{"free"}) {
			t.Errorf("claimed %q", got)
		}
		if l.onExec.Load() != nil {
			t.Error("nothing changed between the SELECT and the UPDATE")
		}
		if owned := d.owned(t, db); owned != 1 {
			t.Errorf("the claim owns %d rows", owned)
		}
	})
}

// owned counts the rows that a claim holds.
func (database) owned(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM msghandler_markers WHERE owner IS NOT NULL").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The calls of a shard's store read and change the messages of that shard alone.
func TestCallsOfShardKeepToShard(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, func(c *sqlmarker.Config) { c.Shards = 2 })
		of := [2][]string{}
		for i := range 12 {
			id := fmt.Sprint("order-", i)
			of[sqlmarker.ShardOf(id, 2)] = append(of[sqlmarker.ShardOf(id, 2)], id)
		}
		enqueue(t, db, s, slices.Concat(of[0], of[1])...)
		mine, others := s.Shard(1), of[0]
		pending, err := mine.Pending(t.Context(), 20)
		slices.Sort(of[1])
		if err != nil || !slices.Equal(idsOf(pending), of[1]) {
			t.Errorf("pending are %v, %v", idsOf(pending), err)
		}
		if n, err := mine.IncrementAttempts(t.Context(), others[0], 0, "refused"); n != 0 || err != nil {
			t.Errorf("incremented the attempts of another shard: %d, %v", n, err)
		}
		if n, err := mine.MarkSent(t.Context(), others[0], of[1][0]); n != 1 || err != nil {
			t.Errorf("marked %d as sent, %v", n, err)
		}
		if n, err := mine.MarkFailed(t.Context(), "refused", others[0], of[1][1]); n != 1 || err != nil {
			t.Errorf("marked %d as failed, %v", n, err)
		}
		want := map[sqlmarker.Status]int64{
			sqlmarker.StatusNew: int64(len(of[1])) - 2, sqlmarker.StatusSent: 1, sqlmarker.StatusFailed: 1,
		}
		if got := statuses(t, mine); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if got := statuses(t, s.Shard(0)); got[sqlmarker.StatusNew] != int64(len(others)) || len(got) != 1 {
			t.Errorf("of the other shard %v", got)
		}
		const older = "UPDATE msghandler_markers SET created_at = created_at - 3600000 WHERE shard_id = 0"
		if _, err := db.ExecContext(t.Context(), older); err != nil {
			t.Fatal(err)
		}
		for shard, want := range []sqlmarker.Backlog{
			{Waiting: int64(len(others))}, {Waiting: int64(len(of[1])) - 2, Failed: 1},
		} {
			got, err := s.Shard(shard).Backlog(t.Context())
			if isOld := got.Oldest >= time.Hour; isOld != (shard == 0) || err != nil {
				t.Errorf("the oldest message of shard %d is %v old, %v", shard, got.Oldest, err)
			}
			if got.Oldest = 0; got != want {
				t.Errorf("shard %d has %+v, want %+v", shard, got, want)
			}
		}
		if failures, err := s.Shard(0).Failures(t.Context(), 10); len(failures) != 0 || err != nil {
			t.Errorf("failures of the other shard: %+v, %v", failures, err)
		}
		if n, err := s.Shard(0).Retry(t.Context(), of[1][1]); n != 0 || err != nil {
			t.Errorf("retried %d messages of another shard, %v", n, err)
		}
	})
}

func TestEnqueuedIsLoggedAfterTheCommit(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		var text bytes.Buffer
		s := d.store(t, db, func(c *sqlmarker.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		enqueue(t, db, s, "1")
		if text.Len() > 0 {
			t.Errorf("before its commit is known: %s", &text)
		}
		s.Enqueued(t.Context(), "1")
		if err := s.Commit(t.Context(), message("2"), nothing); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), message("2"), nothing); err == nil {
			t.Fatal("committed twice")
		}
		said := text.String()
		if strings.Count(said, "message enqueued") != 2 || !strings.Contains(said, "message_id=orders/1\n") ||
			!strings.Contains(said, "message_id=orders/2\n") {
			t.Errorf("%s", said)
		}
	})
}

func TestShardConfigIsChecked(t *testing.T) {
	t.Parallel()
	db := database{sqlmarker.SQLite, "sqlite", "file::memory:"}.open(t)
	for _, c := range []sqlmarker.Config{{Shards: -1}, {ShardID: -1}, {Shards: 4, ShardID: 1}} {
		c.DB, c.Dialect, c.Producer = db, sqlmarker.SQLite, "orders"
		if _, err := sqlmarker.New(c); err == nil {
			t.Errorf("%d shards with shard %d were taken", c.Shards, c.ShardID)
		}
	}
}
