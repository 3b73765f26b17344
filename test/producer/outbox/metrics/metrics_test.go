// Package metrics_test tests prometheus/outboxmetrics on SQLite.
package metrics_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	_ "modernc.org/sqlite"

	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/prometheus/outboxmetrics"
	"github.com/msghandler/msghandler/test/servers"
)

// picky sends some messages, and refuses or does not reach the rest.
type picky struct{}

func (picky) Send(_ context.Context, messages []sqlmarker.Queued) []outbox.Result {
	results := make([]outbox.Result, len(messages))
	for i, q := range messages {
		switch kind, _, _ := strings.Cut(q.Message.ID, "-"); kind {
		case "good":
			results[i].Fate = outbox.Sent
		case "bad":
			results[i] = outbox.Result{Fate: outbox.Refused, Err: errors.New("unroutable")}
		default:
			results[i] = outbox.Result{Fate: outbox.Unreached, Err: errors.New("away")}
		}
	}
	return results
}

func newTable(t *testing.T, ids ...string) *sqlmarker.Store {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(20000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.SQLite, Producer: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		m := producer.Message{ID: id, RoutingKey: "paid", Body: []byte("paid")}
		if err := s.Commit(t.Context(), m, func(context.Context, *sql.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// gathered is the view of Prometheus, by name and labels.
func gathered(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return got
}

func TestPrometheusSeesTheTablesCounts(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	watched, err := outboxmetrics.New(registry, "orders")
	if err != nil {
		t.Fatal(err)
	}
	s := newTable(t, "good-1", "good-2", "bad-1", "away-1")
	relay, err := outbox.New(outbox.Config{
		Table: s, Sender: picky{}, Observer: watched, MaxAttempts: 1, CountInterval: time.Nanosecond,
		Interval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { relay.Run(ctx) })
	servers.Eventually(t, 10*time.Second, "the failure is counted", func() bool {
		got := gathered(t, registry)
		return got["msghandler_outbox_messages orders failed"] == 1 && got["msghandler_outbox_oldest_seconds orders"] > 0
	})
	cancel()
	running.Wait()
	got := gathered(t, registry)
	for name, want := range map[string]float64{
		"msghandler_outbox_messages orders waiting": 1, "msghandler_outbox_messages orders handed": 0,
		"msghandler_outbox_messages orders failed":    1,
		"msghandler_outbox_relayed_total sent orders": 2, "msghandler_outbox_relayed_total refused orders": 1,
		"msghandler_outbox_failed_total orders": 1,
	} {
		if is, there := got[name]; !there || is != want {
			t.Errorf("%s is %v (there: %v), want %v", name, is, there, want)
		}
	}
	if got["msghandler_outbox_relayed_total unreached orders"] < 1 {
		t.Error("the unreached message is not counted")
	}
	if _, err := outboxmetrics.New(registry, "orders"); err == nil {
		t.Error("registered twice")
	}
	if _, err := outboxmetrics.New(registry, "payments"); err != nil {
		t.Errorf("another producer of the process: %v", err)
	}
}
