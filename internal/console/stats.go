package console

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// statsTimeout bounds one count.
const statsTimeout = 3 * time.Second

// kept keeps what was read from the store for a time, so that many readers cost Redis no more than one.
type kept[T any] struct {
	read     func(ctx context.Context) (T, error)
	interval time.Duration

	mu      sync.Mutex
	readAt  time.Time
	current T
	err     error
}

// stats are the counts. It is a prometheus.Collector.
type stats struct{ kept[[]halfmsg.Stat] }

func newStats(read func(ctx context.Context) ([]halfmsg.Stat, error), interval time.Duration) *stats {
	return &stats{kept[[]halfmsg.Stat]{read: read, interval: interval}}
}

// get returns what was read, anew when that is too old. Concurrent callers wait for one reading. An error is kept as long
// as what was read: a Redis in trouble is not asked more often.
func (s *kept[T]) get(ctx context.Context) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.readAt.IsZero() && time.Since(s.readAt) < s.interval {
		return s.current, s.err
	}
	// Others wait for this reading too: the caller that happened to come first must not end it for them.
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
	storeUpDesc = prometheus.NewDesc("msghandler_store_up",
		"Whether the messages in the store could be counted.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s *stats) Describe(ch chan<- *prometheus.Desc) {
	ch <- messagesDesc
	ch <- oldestDesc
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
		ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, age(stat, now).Seconds(), state)
	}
}

// age is how old the oldest message of a state is. The store's clock may run ahead of ours; an age is never negative.
func age(stat halfmsg.Stat, now time.Time) time.Duration {
	if stat.OldestAt.IsZero() {
		return 0
	}
	return max(0, now.Sub(stat.OldestAt))
}
