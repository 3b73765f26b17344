// Package outbox_test tests producer/outbox on PostgreSQL, MariaDB and SQLite.
package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/servers"
)

// patience bounds waits for large amounts of work.
const patience = 5 * time.Minute

var orders = flag.Int("orders", 1000, "how many orders several relays have to send")

func onEach(t *testing.T, test func(t *testing.T, db *sql.DB, d sqlmarker.Dialect)) {
	t.Helper()
	onEachDSN(t, func(t *testing.T, d sqlmarker.Dialect, driver, dsn string) { test(t, openDB(t, driver, dsn), d) })
}

func onEachDSN(t *testing.T, test func(t *testing.T, d sqlmarker.Dialect, driver, dsn string)) {
	t.Helper()
	for dialect, open := range map[sqlmarker.Dialect]func(t *testing.T) (driver, dsn string){
		sqlmarker.PostgreSQL: func(t *testing.T) (string, string) { d := servers.PostgreSQL(t); return d.Driver, d.DSN },
		sqlmarker.MySQL:      func(t *testing.T) (string, string) { d := servers.MariaDB(t); return d.Driver, d.DSN },
		sqlmarker.SQLite:     func(t *testing.T) (string, string) { return sqlite(t) },
	} {
		t.Run(dialect.String(), func(t *testing.T) {
			t.Parallel()
			driver, dsn := open(t)
			test(t, dialect, driver, dsn)
		})
	}
}

func sqlite(t testing.TB) (driver, dsn string) {
	return "sqlite", "file:" + filepath.Join(t.TempDir(), "db") +
		"?_pragma=busy_timeout(300000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
}

func openDB(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func table(t testing.TB, db *sql.DB, d sqlmarker.Dialect) *sqlmarker.Store {
	t.Helper()
	s, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: d, Producer: "orders", LockTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func message(id string) producer.Message {
	return producer.Message{ID: id, Exchange: "orders", RoutingKey: "order.paid", Body: []byte("paid " + id)}
}

// commit commits messages in one transaction.
func commit(t *testing.T, db *sql.DB, s *sqlmarker.Store, ids ...string) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := s.Enqueue(t.Context(), tx, message(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	s.Wake()
}

func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("order-", i)
	}
	return ids
}

func counts(t *testing.T, s *sqlmarker.Store) sqlmarker.Counts {
	t.Helper()
	c, err := s.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Oldest = 0
	return c
}

// sent is a sender that records its messages; fate may be nil for a sender that takes every message.
type sent struct {
	fate func(q sqlmarker.Queued) outbox.Result

	mu    sync.Mutex
	times map[string][]int // by id: the Claims of each time
}

func (s *sent) Send(_ context.Context, messages []sqlmarker.Queued) []outbox.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times == nil {
		s.times = map[string][]int{}
	}
	results := make([]outbox.Result, len(messages))
	for i, q := range messages {
		s.times[q.Message.ID] = append(s.times[q.Message.ID], q.Claims)
		results[i].Fate = outbox.Sent
		if s.fate != nil {
			results[i] = s.fate(q)
		}
	}
	return results
}

func (s *sent) of(id string) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times[id]
}

func relay(t testing.TB, s outbox.Table, sender outbox.Sender, change func(*outbox.Config)) *outbox.Relay {
	t.Helper()
	config := outbox.Config{Table: s, Sender: sender, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&config)
	}
	r, err := outbox.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// run runs relays until the test ends.
func run(t *testing.T, relays ...*outbox.Relay) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, r := range relays {
		running.Go(func() { r.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func TestFourRelaysSendEachRowOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sql.DB, d sqlmarker.Dialect) {
		all, to := *orders, &sent{}
		var relays []*outbox.Relay
		tables := make([]*sqlmarker.Store, 4) // as in four instances of the producer
		for i := range tables {
			tables[i] = table(t, db, d)
			relays = append(relays, relay(t, tables[i], to, func(c *outbox.Config) {
				c.Batch, c.Lock = 50, 3*patience // on a slow machine no lock ends before the outcome is recorded
			}))
		}
		run(t, relays...)
		for part := range 10 {
			ids := numbered(all)[part*all/10 : (part+1)*all/10]
			commit(t, db, tables[part%4], ids...)
			tables[(part+1)%4].Wake()
		}
		servers.Eventually(t, patience, "all to be sent", func() bool {
			return counts(t, tables[0]).Sent == int64(all)
		})
		for _, id := range numbered(all) {
			if times := to.of(id); len(times) != 1 || times[0] != 1 {
				t.Errorf("%s was sent %d times, as claims %v", id, len(times), times)
			}
		}
		t.Logf("%d orders, each sent once by 4 relays", all)
	})
}

func TestRelayClaimsADeadRelaysRows(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sql.DB, d sqlmarker.Dialect) {
		s, to := table(t, db, d), &sent{}
		commit(t, db, s, numbered(20)...)
		// The relay dies between its claim and its release, so the fates of its messages are unknown.
		if _, err := s.Claim(t.Context(), sqlmarker.ClaimRequest{Limit: 10, Lock: time.Second}); err != nil {
			t.Fatal(err)
		}
		run(t, relay(t, s, to, func(c *outbox.Config) { c.Interval = 50 * time.Millisecond }))
		servers.Eventually(t, time.Minute, "all to be sent", func() bool { return counts(t, s).Sent == 20 })
		flagged := 0
		for _, id := range numbered(20) {
			times := to.of(id)
			if len(times) != 1 {
				t.Fatalf("%s was sent %d times", id, len(times))
			}
			if times[0] == 2 {
				flagged++
			}
		}
		if flagged != 10 {
			t.Errorf("%d are flagged as perhaps sent before, want the dead relay's 10", flagged)
		}
	})
}

func TestRefusedMessageDelaysNoOther(t *testing.T) {
	t.Parallel()
	db := openDB(t, "sqlite", second(sqlite(t)))
	s := table(t, db, sqlmarker.SQLite)
	fixed := false
	to := &sent{}
	to.fate = func(q sqlmarker.Queued) outbox.Result {
		if q.Message.ID == "order-0" && !fixed {
			return outbox.Result{Fate: outbox.Refused, Err: errors.New("unroutable " + strings.Repeat("x", 5000))}
		}
		return outbox.Result{Fate: outbox.Sent}
	}
	commit(t, db, s, numbered(3)...)
	r := relay(t, s, to, func(c *outbox.Config) {
		c.MaxAttempts, c.Backoff = 3, []time.Duration{time.Nanosecond}
	})
	servers.Eventually(t, 10*time.Second, "the limit", func() bool {
		if _, err := r.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		return counts(t, s).Failed == 1
	})
	if got := counts(t, s); got.Sent != 2 || len(to.of("order-0")) != 3 || len(to.of("order-1")) != 1 {
		t.Errorf("%+v, sent %v", got, to.times)
	}
	fixed = true
	if n, err := s.Retry(t.Context(), "order-0"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := r.Pass(t.Context()); err != nil || counts(t, s).Sent != 3 {
		t.Errorf("after the retry: %v, %+v", err, counts(t, s))
	}
}

func second(_, dsn string) string { return dsn }

func TestUnreachableSenderUsesNoAttempt(t *testing.T) {
	t.Parallel()
	db := openDB(t, "sqlite", second(sqlite(t)))
	s := table(t, db, sqlmarker.SQLite)
	away := true
	to := &sent{}
	to.fate = func(sqlmarker.Queued) outbox.Result {
		if away {
			return outbox.Result{Fate: outbox.Unreached, Err: errors.New("connection refused"), Unsent: true}
		}
		return outbox.Result{Fate: outbox.Sent}
	}
	commit(t, db, s, "1")
	r := relay(t, s, to, func(c *outbox.Config) { c.MaxAttempts, c.Interval = 2, time.Nanosecond })
	for range 5 {
		if more, err := r.Pass(t.Context()); more || err == nil {
			t.Fatalf("a relay without a reachable sender goes on: %v, %v", more, err)
		}
	}
	away = false
	if _, err := r.Pass(t.Context()); err != nil || counts(t, s).Sent != 1 {
		t.Errorf("%v, %+v", err, counts(t, s))
	}
	if claims := to.of("1"); claims[len(claims)-1] != 1 {
		t.Errorf("the first copy is taken for a repeated copy: claims %v", claims)
	}
}

func TestPanickingSenderIsARefusal(t *testing.T) {
	t.Parallel()
	db := openDB(t, "sqlite", second(sqlite(t)))
	s := table(t, db, sqlmarker.SQLite)
	commit(t, db, s, "1")
	to := &sent{fate: func(sqlmarker.Queued) outbox.Result { panic("bug") }}
	r := relay(t, s, to, func(c *outbox.Config) { c.MaxAttempts = 1 })
	if _, err := r.Pass(t.Context()); err != nil || counts(t, s).Failed != 1 {
		t.Errorf("%v, %+v", err, counts(t, s))
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]outbox.Config{
		"table": {Sender: &sent{}}, "sender": {Table: &sqlmarker.Store{}},
		"negative": {Sender: &sent{}, Table: &sqlmarker.Store{}, Batch: -1},
	} {
		if _, err := outbox.New(config); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
