// Package shards_test tests producer/outbox/shards on PostgreSQL, MariaDB and SQLite.
package shards_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/producer/outbox/shards"
	"github.com/msghandler/msghandler/test/producer/outbox/databases"
	"github.com/msghandler/msghandler/test/servers"
)

var orders = flag.Int("orders", 1000, "how many orders the relays have to send")

const (
	allShards = 16
	// patience bounds waits for large amounts of work.
	patience = 5 * time.Minute
	// testLease is short, so that a dead relay's shards are soon taken.
	testLease = 3 * time.Second
	testLock  = 30 * time.Second
)

func store(t testing.TB, d databases.Database, db *sql.DB, change func(*sqlmarker.Config)) *sqlmarker.Store {
	t.Helper()
	config := sqlmarker.Config{
		DB: db, Dialect: d.Dialect, Producer: "orders", LockTimeout: 20 * time.Second, Shards: allShards,
	}
	if change != nil {
		change(&config)
	}
	s, err := sqlmarker.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// leases are the leases of a relay.
func leases(t testing.TB, d databases.Database, db *sql.DB, owner string) *shards.Leases {
	t.Helper()
	l, err := shards.NewLeases(leasesConfig(d, db, owner))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

func leasesConfig(d databases.Database, db *sql.DB, owner string) shards.LeasesConfig {
	return shards.LeasesConfig{
		DB: db, Dialect: d.Dialect, Producer: "orders", Owner: owner, Lease: testLease, Logger: slog.New(slog.DiscardHandler),
	}
}

func table(t testing.TB, tables []outbox.Table, l *shards.Leases) *shards.Table {
	t.Helper()
	held, err := shards.New(shards.Config{Tables: tables, Leases: l, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func relay(t testing.TB, table outbox.Table, to outbox.Sender) *outbox.Relay {
	t.Helper()
	return relayLocking(t, table, to, testLock)
}

// relayLocking is relay with claims that last so long.
func relayLocking(t testing.TB, table outbox.Table, to outbox.Sender, lock time.Duration) *outbox.Relay {
	t.Helper()
	r, err := outbox.New(outbox.Config{
		Table: table, Sender: to, Interval: 100 * time.Millisecond, Batch: 50, Lock: lock,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// commit commits messages, in a transaction.
func commit(t testing.TB, db *sql.DB, s *sqlmarker.Store, ids ...string) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := s.Enqueue(t.Context(), tx, databases.Message(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	s.Enqueued(t.Context(), ids...)
}

func nothing(context.Context, *sql.Tx) error { return nil }

// sentRows is how many rows of a table are sent.
func sentRows(t testing.TB, s *sqlmarker.Store) int {
	t.Helper()
	c, err := s.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int(c.Sent)
}

// heldBy returns the shards of each relay in the table of leases.
func heldBy(t testing.TB, db *sql.DB) map[string][]int {
	t.Helper()
	rows, err := db.QueryContext(t.Context(),
		`SELECT owner, shard_id FROM msghandler_shard_leases
		WHERE shard_id IS NOT NULL AND owner IS NOT NULL ORDER BY shard_id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	held := map[string][]int{}
	for rows.Next() {
		var owner []byte
		var shard int
		if err := rows.Scan(&owner, &shard); err != nil {
			t.Fatal(err)
		}
		held[string(owner)] = append(held[string(owner)], shard)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return held
}

// sizes are the numbers of shards of the relays, sorted.
func sizes(held map[string][]int) (all []int) {
	for _, shards := range held {
		all = append(all, len(shards))
	}
	slices.Sort(all)
	return all
}

// Relays divide the shards evenly. A new relay gets its share, and the shards of a relay that stops are taken at once.
func TestRelaysDivideShardsEvenly(t *testing.T) {
	t.Parallel()
	databases.OnEach(t, func(t *testing.T, d databases.Database) {
		db := d.Open(t)
		s := store(t, d, db, nil)
		var stops []func()
		var tables []*shards.Table
		for n, want := range [][]int{{16}, {8, 8}, {5, 5, 6}, {4, 4, 4, 4}} {
			held := table(t, shards.Of(s), leases(t, d, db, fmt.Sprint("relay-", n)))
			tables = append(tables, held)
			stops = append(stops, databases.Run(t, relay(t, held, &databases.Recorder{})))
			servers.Eventually(t, patience, fmt.Sprintf("shares of %v", want), func() bool {
				return slices.Equal(sizes(heldBy(t, db)), want)
			})
		}
		servers.Eventually(t, patience, "each shard to be held by a single relay", func() bool {
			var all []int
			for _, held := range tables {
				all = append(all, held.Held()...)
			}
			slices.Sort(all)
			return len(all) == allShards && len(slices.Compact(all)) == allShards
		})
		stops[1]()
		if held := heldBy(t, db)["relay-1"]; len(held) != 0 {
			t.Errorf("a stopped relay keeps %v", held)
		}
		servers.Eventually(t, patience, "three relays with all shards", func() bool {
			return slices.Equal(sizes(heldBy(t, db)), []int{5, 5, 6})
		})
	})
}

// A relay that is given its shards sends their messages and no others.
func TestRelaySendsOnlyItsShards(t *testing.T) {
	t.Parallel()
	databases.OnEach(t, func(t *testing.T, d databases.Database) {
		db := d.Open(t)
		s := store(t, d, db, nil)
		ids := databases.Numbered("order", 400)
		commit(t, db, s, ids...)
		given := []int{0, 3, 7}
		of := map[int]int{}
		for _, id := range ids {
			of[sqlmarker.ShardOf(id, allShards)]++
		}
		expected := of[0] + of[3] + of[7]
		to := &databases.Recorder{}
		var tables []outbox.Table
		for _, shard := range given {
			tables = append(tables, s.Shard(shard))
		}
		r := relay(t, table(t, tables, nil), to)
		servers.Eventually(t, patience, "its shards to be sent", func() bool {
			if _, err := r.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			return to.Len() >= expected
		})
		for range 5 {
			if _, err := r.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if to.Len() != expected || sentRows(t, s) != expected || len(of) != allShards {
			t.Errorf("%d sent, %d recorded, want %d; shards with messages: %d", to.Len(), sentRows(t, s), expected, len(of))
		}
		for _, id := range ids {
			shard := sqlmarker.ShardOf(id, allShards)
			if sent := to.Of(id); len(sent) > 0 && (!slices.Contains(given, shard) || sent[0].Shard != shard) {
				t.Errorf("%s of shard %d was sent as a message of shard %d", id, shard, sent[0].Shard)
			}
		}
	})
}

// All messages of an aggregate are in one shard, and one relay without shards sends the messages of all shards.
func TestAggregateStaysInOneShard(t *testing.T) {
	t.Parallel()
	databases.OnEach(t, func(t *testing.T, d databases.Database) {
		db := d.Open(t)
		s := store(t, d, db, func(c *sqlmarker.Config) {
			c.Describe = func(m producer.Message) sqlmarker.Event {
				aggregate, _, _ := strings.Cut(m.ID, ".")
				return sqlmarker.Event{Type: "paid", AggregateType: "order", AggregateID: aggregate}
			}
		})
		var ids []string
		for order := range 20 {
			for event := range 3 {
				ids = append(ids, fmt.Sprintf("%d.%d", order, event))
			}
		}
		commit(t, db, s, ids...)
		to := &databases.Recorder{}
		r := relay(t, s, to)
		servers.Eventually(t, patience, "all to be sent", func() bool {
			if _, err := r.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			return to.Len() == len(ids)
		})
		for _, id := range ids {
			order, _, _ := strings.Cut(id, ".")
			if got, want := to.Of(id)[0].Shard, sqlmarker.ShardOf(order, allShards); got != want {
				t.Errorf("%s is in shard %d, want %d", id, got, want)
			}
		}
	})
}

// After the number of shards was lowered, the relay of shard 0 sends the messages of the shards above.
func TestFewerShardsForgetNoMessage(t *testing.T) {
	t.Parallel()
	databases.OnEach(t, func(t *testing.T, d databases.Database) {
		db := d.Open(t)
		ids := databases.Numbered("order", 200)
		commit(t, db, store(t, d, db, func(c *sqlmarker.Config) { c.Shards = 40 }), ids...)
		few := store(t, d, db, func(c *sqlmarker.Config) { c.Shards = 2 })
		to := &databases.Recorder{}
		databases.Run(t, relay(t, table(t, []outbox.Table{few.Shard(1)}, nil), to))
		databases.Run(t, relay(t, table(t, []outbox.Table{few.Shard(0)}, nil), to))
		servers.Eventually(t, patience, "all to be sent", func() bool { return sentRows(t, few) == len(ids) })
		for _, id := range ids {
			if sent := to.Of(id); len(sent) != 1 {
				t.Errorf("%s was sent %d times", id, len(sent))
			}
		}
	})
}

// Messages of removed shards that are due much later hold up no message of another removed shard.
func TestLateMessagesDelayNoRemovedShard(t *testing.T) {
	t.Parallel()
	databases.OnEach(t, func(t *testing.T, d databases.Database) {
		db := d.Open(t)
		many := store(t, d, db, func(c *sqlmarker.Config) { c.Shards = 40 })
		for shard := range 30 {
			commit(t, db, many.Shard(shard), fmt.Sprint("late-", shard))
		}
		if _, err := db.ExecContext(t.Context(), "UPDATE msghandler_markers SET due_at = due_at + 3600000"); err != nil {
			t.Fatal(err)
		}
		commit(t, db, many.Shard(35), "due")
		few := store(t, d, db, func(c *sqlmarker.Config) { c.Shards = 2 })
		to := &databases.Recorder{}
		databases.Run(t, relay(t, table(t, []outbox.Table{few.Shard(0)}, nil), to))
		servers.Eventually(t, patience, "the due message is sent", func() bool { return len(to.Of("due")) == 1 })
	})
}

// A shard may be a table or a database of its own.
func TestShardsMayBeTablesOrDatabases(t *testing.T) {
	t.Parallel()
	databases.OnEach(t, func(t *testing.T, d databases.Database) {
		const parts = 4
		dbs := make([]*sql.DB, parts)
		stores := make([]*sqlmarker.Store, parts)
		tables := make([]outbox.Table, parts)
		for n := range parts {
			of := d
			if d.Dialect == sqlmarker.SQLite { // a database of its own; elsewhere a table of its own
				of = databases.SQLite(t)
			}
			dbs[n] = of.Open(t)
			stores[n] = store(t, of, dbs[n], func(c *sqlmarker.Config) {
				c.Shards, c.ShardID, c.Table = 1, n, fmt.Sprintf("outbox_%02d", n)
			})
			tables[n] = stores[n]
		}
		ids := databases.Numbered("order", 400)
		for _, id := range ids {
			n := sqlmarker.ShardOf(id, parts)
			if err := stores[n].Commit(t.Context(), databases.Message(id), nothing); err != nil {
				t.Fatal(err)
			}
		}
		var recorders [2]databases.Recorder
		for n := range recorders {
			l := leases(t, d, dbs[0], fmt.Sprint("relay-", n))
			databases.Run(t, relay(t, table(t, tables, l), &recorders[n]))
		}
		servers.Eventually(t, patience, "all to be sent", func() bool {
			all := 0
			for _, s := range stores {
				all += sentRows(t, s)
			}
			return all == len(ids)
		})
		for _, id := range ids {
			sent := slices.Concat(recorders[0].Of(id), recorders[1].Of(id))
			if len(sent) != 1 || sent[0].Shard != sqlmarker.ShardOf(id, parts) {
				t.Errorf("%s was sent as %+v", id, sent)
			}
		}
	})
}

// failing is a table that cannot be reached.
type failing struct {
	outbox.Table
	claims int
}

func (f *failing) Claim(ctx context.Context, _ sqlmarker.ClaimRequest) (sqlmarker.Claim, error) {
	f.claims++
	<-ctx.Done()
	return sqlmarker.Claim{}, ctx.Err()
}

// hung are the tables of a store with messages, of which some are replaced by tables that hang.
type hung struct {
	store  *sqlmarker.Store
	tables []outbox.Table
	// others is the number of messages in other tables.
	others int
}

func newHung(t *testing.T, messages int, replace func(outbox.Table) outbox.Table, hanging ...int) hung {
	t.Helper()
	d := databases.SQLite(t)
	db := d.Open(t)
	h := hung{store: store(t, d, db, nil)}
	ids := databases.Numbered("order", messages)
	commit(t, db, h.store, ids...)
	h.tables = shards.Of(h.store)
	for _, shard := range hanging {
		h.tables[shard] = replace(h.tables[shard])
	}
	for _, id := range ids {
		if !slices.Contains(hanging, sqlmarker.ShardOf(id, allShards)) {
			h.others++
		}
	}
	if h.others == messages {
		t.Fatal("no message is in a hanging table")
	}
	return h
}

// relay waits for a database that hangs for a third of the lock.
func (h hung) relay(t *testing.T, to outbox.Sender, lock time.Duration) *outbox.Relay {
	t.Helper()
	r, err := outbox.New(outbox.Config{
		Table: table(t, h.tables, nil), Sender: to, Batch: 50, Lock: lock,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A database that hangs delays the first claim for a part of the lock, and none of the next.
func TestHangingDatabaseDelaysNoOtherShard(t *testing.T) {
	t.Parallel()
	var hanging *failing
	h := newHung(t, 100, func(table outbox.Table) outbox.Table {
		hanging = &failing{Table: table}
		return hanging
	}, 5)
	to := &databases.Recorder{}
	r := relay(t, table(t, h.tables, nil), to)
	begun := time.Now()
	for pass := 0; to.Len() < h.others || pass < 10; pass++ {
		if _, err := r.Pass(t.Context()); err != nil && pass > 2*allShards {
			t.Fatalf("%d of %d messages of the other shards were sent after %d passes: %v", to.Len(), h.others, pass, err)
		}
	}
	if most := 1 + int(time.Since(begun)/testLock); hanging.claims > most {
		t.Errorf("%d claims waited for the hanging database, want %d at most", hanging.claims, most)
	}
}

// Several databases that hang are each waited for once in their pause. The others come first meanwhile.
func TestSeveralHangingDatabasesKeepNothingBack(t *testing.T) {
	t.Parallel()
	shardsThatHang := []int{2, 3, 7, 11, 12}
	var hanging []*failing
	h := newHung(t, 100, func(table outbox.Table) outbox.Table {
		hanging = append(hanging, &failing{Table: table})
		return hanging[len(hanging)-1]
	}, shardsThatHang...)
	to := &databases.Recorder{}
	const lock = 3 * time.Second
	r, begun := h.relay(t, to, lock), time.Now()
	servers.Eventually(t, patience, "the messages of the other shards are sent", func() bool {
		_, _ = r.Pass(t.Context()) // a shard that hangs is an error
		return to.Len() >= h.others
	})
	for i, table := range hanging {
		if most := 1 + int(time.Since(begun)/lock); table.claims > most {
			t.Errorf("%d claims waited for shard %d, want %d at most", table.claims, shardsThatHang[i], most)
		}
	}
}

// stuck is a table whose records hang until recovered is closed, and fail then.
type stuck struct {
	outbox.Table
	recovered <-chan struct{}
}

func (s stuck) Release(ctx context.Context, _ string, _ []sqlmarker.Outcome) (int64, error) {
	select {
	case <-s.recovered:
		return 0, errors.New("the database was stuck")
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// A database that hangs when outcomes are recorded keeps no other from recording its own.
func TestHangingRecordKeepsNoOtherBack(t *testing.T) {
	t.Parallel()
	recovered := make(chan struct{})
	h := newHung(t, 40, func(table outbox.Table) outbox.Table { return stuck{table, recovered} }, 5)
	relay := h.relay(t, &databases.Recorder{}, 3*patience)
	pass := make(chan error, 1)
	go func() {
		_, err := relay.Pass(t.Context())
		pass <- err
	}()
	servers.Eventually(t, patience, "the records of the other shards", func() bool {
		return sentRows(t, h.store) == h.others
	})
	close(recovered)
	if err := <-pass; err == nil {
		t.Error("the record of the stuck shard did not fail")
	}
}

// A claim of several tables ends with the first of its locks: behind it another relay may have that table's messages.
func TestShortestLockEndsTheClaim(t *testing.T) {
	t.Parallel()
	d := databases.SQLite(t)
	db := d.Open(t)
	s := store(t, d, db, func(c *sqlmarker.Config) { c.Shards = 2 })
	long := producer.Message{ID: "long", Exchange: "orders", Body: make([]byte, 4_000_000)}
	short := producer.Message{ID: "short", Exchange: "orders"}
	for shard, m := range []producer.Message{long, short} {
		if err := s.Shard(shard).Commit(t.Context(), m, nothing); err != nil {
			t.Fatal(err)
		}
	}
	held := table(t, shards.Of(s), nil)
	request := sqlmarker.ClaimRequest{Owner: "one", Limit: 2, Lock: testLock}
	both, err := held.Claim(t.Context(), request)
	if err != nil || len(both.Messages) != 2 || both.Lock != testLock {
		t.Errorf("%d messages are locked for %v: %v", len(both.Messages), both.Lock, err)
	}
	var locks []int64
	for _, id := range []string{"long", "short"} {
		var lock int64
		query := "SELECT lock_until - lock_time FROM msghandler_markers WHERE id = CAST('" + id + "' AS BLOB)"
		if err := db.QueryRowContext(t.Context(), query).Scan(&lock); err != nil {
			t.Fatal(err)
		}
		locks = append(locks, lock)
	}
	if slices.Min(locks) != both.Lock.Milliseconds() || slices.Max(locks) < 60_000 {
		t.Errorf("the locks last %v ms", locks)
	}
}
