package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/servers"
)

// large commits messages of 100,000 bytes.
func large(t *testing.T, db *sql.DB, s *sqlmarker.Store, messages int) {
	t.Helper()
	for i := range messages {
		m := producer.Message{ID: fmt.Sprintf("%03d", i), Exchange: "orders", Body: []byte(strings.Repeat("x", 100_000))}
		if err := s.Commit(t.Context(), m, func(context.Context, *sql.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// weighing is a sender that records the length of the longest batch.
type weighing struct{ longest, messages int }

func (w *weighing) Send(_ context.Context, messages []sqlmarker.Queued) []outbox.Result {
	results, bytes := make([]outbox.Result, len(messages)), 0
	for i, q := range messages {
		bytes += len(q.Message.Body)
		results[i].Fate = outbox.Sent
	}
	w.longest, w.messages = max(w.longest, bytes), w.messages+len(messages)
	return results
}

func TestBatchEndsAtItsBytes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sql.DB, d sqlmarker.Dialect) {
		s, to := table(t, db, d), &weighing{}
		large(t, db, s, 20)
		r := relay(t, s, to, func(c *outbox.Config) { c.Bytes = 250_000 })
		for more := true; more; {
			var err error
			if more, err = r.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if to.messages != 20 || to.longest != 300_000 {
			t.Errorf("%d messages were sent, in batches of up to %d bytes; want 20, and 300,000", to.messages, to.longest)
		}
	})
}

// narrow is a table on a connection that carries so many bytes in the time of a Load.
type narrow struct {
	*sqlmarker.Store
	bytes int64
}

func (n *narrow) Load(ctx context.Context, token string, claimed []sqlmarker.Claimed) ([]sqlmarker.Queued, error) {
	var bytes int64
	for _, c := range claimed {
		bytes += c.Bytes
	}
	if bytes > n.bytes {
		return nil, context.DeadlineExceeded
	}
	return n.Store.Load(ctx, token, claimed)
}

func TestBatchIsHalvedUntilItLoads(t *testing.T) {
	t.Parallel()
	db := openDB(t, "sqlite", second(sqlite(t)))
	s, to := &narrow{table(t, db, sqlmarker.SQLite), 250_000}, &weighing{}
	large(t, db, s.Store, 20)
	r := relay(t, s, to, func(c *outbox.Config) { c.Interval = time.Nanosecond })
	servers.Eventually(t, 20*time.Second, "all to be sent", func() bool {
		if _, err := r.Pass(t.Context()); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return to.messages == 20
	})
	if first, err := s.Failures(t.Context(), 1); err != nil || len(first) > 0 {
		t.Errorf("%+v, %v", first, err)
	}
}

// farAway is a table on a line that carries 70,000 bytes a second.
type farAway struct{ *sqlmarker.Store }

func (s *farAway) Load(ctx context.Context, token string, claimed []sqlmarker.Claimed) ([]sqlmarker.Queued, error) {
	var bytes int64
	for _, c := range claimed {
		bytes += c.Bytes
	}
	if deadline, _ := ctx.Deadline(); time.Until(deadline) < time.Duration(bytes)*time.Second/70_000 {
		return nil, context.DeadlineExceeded
	}
	return s.Store.Load(ctx, token, claimed)
}

// A body that takes longer than a sixth of the usual lock is loaded within a longer one, which no other relay breaks.
func TestLongBodyGetsTimeToLoad(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sql.DB, d sqlmarker.Dialect) {
		s, to := &farAway{table(t, db, d)}, &weighing{}
		m := producer.Message{ID: "1", Exchange: "orders", Body: make([]byte, 4_000_000)}
		if err := s.Commit(t.Context(), m, func(context.Context, *sql.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := relay(t, s, to, nil).Pass(t.Context()); err != nil || to.messages != 1 {
			t.Errorf("%d messages were sent: %v", to.messages, err)
		}
		m.ID = "2"
		if err := s.Commit(t.Context(), m, func(context.Context, *sql.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
		claim, err := s.Claim(t.Context(), sqlmarker.ClaimRequest{Owner: "one", Limit: 1, Lock: 30 * time.Second})
		if err != nil || len(claim.Messages) != 1 {
			t.Fatalf("%+v, %v", claim, err)
		}
		var lock int64
		query := "SELECT lock_until - lock_time FROM msghandler_markers WHERE owner IS NOT NULL"
		if err := db.QueryRowContext(t.Context(), query).Scan(&lock); err != nil {
			t.Fatal(err)
		}
		if lock < claim.Lock.Milliseconds() || claim.Lock < 80*time.Second {
			t.Errorf("the lock lasts %d ms, and the claim says %v", lock, claim.Lock)
		}
	})
}

// Only a long message alone needs a longer lock: a claim of several that does not load in time is halved. So a relay
// that dies with a full batch of usual messages holds them up no longer than it must.
func TestFullBatchKeepsTheUsualLock(t *testing.T) {
	t.Parallel()
	db := openDB(t, "sqlite", second(sqlite(t)))
	s := table(t, db, sqlmarker.SQLite)
	large(t, db, s, 42)
	request := sqlmarker.ClaimRequest{Owner: "one", Limit: 200, Bytes: 4 << 20, Lock: 30 * time.Second}
	claim, err := s.Claim(t.Context(), request)
	if err != nil || len(claim.Messages) != 42 || claim.Lock != request.Lock {
		t.Errorf("%d messages are locked for %v: %v", len(claim.Messages), claim.Lock, err)
	}
}

// Half of the messages get no answer. The others must not wait for a pause after each batch.
func TestUnansweredMessagesStopNoOther(t *testing.T) {
	t.Parallel()
	db := openDB(t, "sqlite", second(sqlite(t)))
	s := table(t, db, sqlmarker.SQLite)
	commit(t, db, s, numbered(200)...)
	to := &sent{fate: func(q sqlmarker.Queued) outbox.Result {
		if strings.HasSuffix(q.Message.ID, "7") {
			return outbox.Result{Fate: outbox.Unreached, Err: errors.New("no answer")}
		}
		return outbox.Result{Fate: outbox.Sent}
	}}
	r := relay(t, s, to, func(c *outbox.Config) { c.Batch, c.Interval = 20, time.Hour })
	passes := 0
	for more := true; more; passes++ {
		more, _ = r.Pass(t.Context()) // the messages without an answer are an error
	}
	if c := counts(t, s); c.Sent != 180 || passes != 11 {
		t.Errorf("%+v after %d passes without a pause", c, passes)
	}
}

// While the receiver takes nothing, the messages stay free for other relays.
func TestUnreadySenderClaimsNothing(t *testing.T) {
	t.Parallel()
	db := openDB(t, "sqlite", second(sqlite(t)))
	s, to := table(t, db, sqlmarker.SQLite), &unready{}
	commit(t, db, s, "1")
	if more, err := relay(t, s, to, nil).Pass(t.Context()); more || err != nil || to.messages > 0 {
		t.Errorf("%v, %v, %d messages", more, err, to.messages)
	}
	if _, err := relay(t, s, &to.weighing, nil).Pass(t.Context()); err != nil || to.messages != 1 {
		t.Errorf("%v, %d messages", err, to.messages)
	}
}

type unready struct{ weighing }

func (*unready) Ready() error { return errors.New("the broker is away") }
