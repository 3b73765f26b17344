package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
)

// statsTimeout bounds a count.
const statsTimeout = 3 * time.Second

// cached caches a reading of the store for a time, so that many readers cost Redis no more than a single reader.
type cached[T any] struct {
	read     func(ctx context.Context) (T, error)
	interval time.Duration

	mu      sync.Mutex
	readAt  time.Time
	current T
	err     error
}

// stats are the counts of messages, and a prometheus.Collector.
type stats struct {
	cached[[]halfmsg.Stat]
	// peers has the producers of this coordinator, whose pending messages are told when there are none, too.
	peers *peerstats.Registry
}

func newStats(
	read func(ctx context.Context) ([]halfmsg.Stat, error), peers *peerstats.Registry, interval time.Duration,
) *stats {
	return &stats{cached[[]halfmsg.Stat]{read: read, interval: interval}, peers}
}

// get returns the cached reading, or a new reading when the cached one is too old. Concurrent callers wait for the same
// reading. An error is cached too, so that a Redis in trouble gets no additional calls.
func (s *cached[T]) get(ctx context.Context) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.readAt.IsZero() && time.Since(s.readAt) < s.interval {
		return s.current, s.err
	}
	// Other callers wait for this reading too, so the context of the first caller must not end the reading.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statsTimeout)
	defer cancel()
	s.current, s.err = s.read(ctx)
	s.readAt = time.Now()
	return s.current, s.err
}

var (
	messagesDesc = prometheus.NewDesc("msghandler_messages",
		"Messages that stand in a state, in the whole store.", []string{"state"}, nil)
	oldestDesc = prometheus.NewDesc("msghandler_oldest_message_age_seconds",
		"Age of the oldest message of a state, since SendHalfMessage; 0 when there is none.", []string{"state"}, nil)
	overdueDesc = prometheus.NewDesc("msghandler_overdue_seconds",
		"For how long the first message of a state has been due without a coordinator that works on it; 0 when none is.",
		[]string{"state"}, nil)
	heldDesc = prometheus.NewDesc("msghandler_held_messages",
		"SENDABLE messages that wait for an earlier message with their ordering key, in the whole store.", nil, nil)
	pendingDesc = prometheus.NewDesc("msghandler_pending_messages",
		"PENDING messages by producer, in the whole store; those of the producers with the fewest are other.",
		[]string{"producer"}, nil)
	storeUpDesc = prometheus.NewDesc("msghandler_store_up",
		"Whether the messages in the store could be counted.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s *stats) Describe(ch chan<- *prometheus.Desc) {
	ch <- messagesDesc
	ch <- oldestDesc
	ch <- overdueDesc
	ch <- heldDesc
	ch <- pendingDesc
	ch <- storeUpDesc
}

// Collect implements prometheus.Collector. While the store does not answer the counts are left out rather than made up.
func (s *stats) Collect(ch chan<- prometheus.Metric) {
	current, err := s.get(context.Background())
	if err != nil {
		ch <- prometheus.MustNewConstMetric(storeUpDesc, prometheus.GaugeValue, 0)
		return
	}
	ch <- prometheus.MustNewConstMetric(storeUpDesc, prometheus.GaugeValue, 1)
	now := time.Now()
	for _, stat := range current {
		state := stat.State.String()
		ch <- prometheus.MustNewConstMetric(messagesDesc, prometheus.GaugeValue, float64(stat.Count), state)
		ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, ago(stat.OldestAt, now).Seconds(), state)
		ch <- prometheus.MustNewConstMetric(overdueDesc, prometheus.GaugeValue, ago(stat.FirstDueAt, now).Seconds(), state)
		if stat.State == halfmsg.Sendable {
			ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(stat.Held))
		}
		if stat.State == halfmsg.Pending {
			s.collectPending(ch, stat.Producers)
		}
	}
}

// collectPending tells the counts, and 0 of producers of this coordinator without pending messages. Those that are
// among the others have some.
func (s *stats) collectPending(ch chan<- prometheus.Metric, all map[string]int64) {
	counts := bounded(all)
	for _, p := range s.peers.Producers() {
		if all[p.Name] == 0 && counts[p.Name] == 0 {
			ch <- prometheus.MustNewConstMetric(pendingDesc, prometheus.GaugeValue, 0, p.Name)
		}
	}
	for producer, n := range counts {
		ch <- prometheus.MustNewConstMetric(pendingDesc, prometheus.GaugeValue, float64(n), producer)
	}
}

// bounded adds up the counts of the producers with the fewest messages, so that the number of series is bounded.
func bounded(producers map[string]int64) map[string]int64 {
	if len(producers) <= peerstats.MaxNamed {
		return producers
	}
	names := slices.SortedFunc(maps.Keys(producers), func(a, b string) int {
		return cmp.Or(cmp.Compare(producers[b], producers[a]), cmp.Compare(a, b))
	})
	counts := map[string]int64{}
	for i, name := range names {
		if i >= peerstats.MaxNamed {
			counts[peerstats.Other] += producers[name]
			continue
		}
		counts[name] += producers[name]
	}
	return counts
}

// ago is how long ago a time of the store was, 0 for no time. The store's clock may run ahead of ours.
func ago(then, now time.Time) time.Duration {
	if then.IsZero() {
		return 0
	}
	return max(0, now.Sub(then))
}
