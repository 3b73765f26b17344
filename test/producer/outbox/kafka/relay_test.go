package kafka_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/servers"
)

// The plain outbox on Kafka: transactions commit while the cluster is killed twice, and each message arrives. Copies
// after the first are flagged.
func TestRelayOutlivesAKilledCluster(t *testing.T) {
	t.Parallel()
	const messages, transactions = 50, 60
	k := cluster(t, "paid")
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+
		"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	table, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.SQLite, Producer: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	relay, err := outbox.New(outbox.Config{
		Table: table, Sender: sender(t, k), Interval: 100 * time.Millisecond, Lock: 6 * time.Second,
		Backoff: []time.Duration{100 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { relay.Run(ctx) })
	defer group.Wait()
	defer stop()

	for i := range transactions {
		commit(t, db, table, i*messages, messages)
		if i == transactions/3 || i == 2*transactions/3 {
			k.Kill()
			commit(t, db, table, (transactions+i)*messages, messages)
			k.Restart()
		}
	}
	total := (transactions + 2) * messages
	servers.Eventually(t, 2*time.Minute, fmt.Sprintf("%d messages are sent", total), func() bool {
		counts, err := table.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return counts.Sent == int64(total)
	})
	copies := map[string][]int{}
	for _, f := range read(t, k, "paid") {
		attempt, _ := strconv.Atoi(f.header("msghandler-attempt"))
		copies[f.header("msghandler-id")] = append(copies[f.header("msghandler-id")], attempt)
	}
	if len(copies) != total {
		t.Errorf("%d messages arrived, want %d", len(copies), total)
	}
	for id, attempts := range copies {
		first := 0
		for _, attempt := range attempts {
			if attempt == 1 {
				first++
			}
		}
		if first > 1 {
			t.Errorf("message %s has copies by number %v", id, attempts)
		}
	}
}

// commit commits messages in one transaction.
func commit(t *testing.T, db *sql.DB, table *sqlmarker.Store, first, count int) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range count {
		id := fmt.Sprint(first + i)
		m := producer.Message{ID: id, Exchange: "paid", RoutingKey: id, Body: []byte("paid " + id)}
		if err := table.Enqueue(t.Context(), tx, m); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	table.Wake()
}
