package console

import (
	"context"
	"time"

	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/console/peerstats"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// sampler turns counts since the start into differences since the previous sample.
type sampler struct {
	metrics *Metrics
	at      time.Time
	in, out float64
	away    int64
	latency peerstats.Counted
}

// sample adds samples for the charts until the context ends.
func (c *Console) sample(ctx context.Context) {
	s := &sampler{metrics: c.config.Metrics}
	s.take(time.Now())
	ticker := time.NewTicker(history.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			sample := s.take(now)
			if stats, err := c.stats.get(ctx); err == nil {
				sample.Counts = map[halfmsg.State]int64{}
				for _, stat := range stats {
					sample.Counts[stat.State] = stat.Count
				}
			}
			c.ring.Add(sample)
		}
	}
}

// take makes a sample of the counts since the previous sample.
func (s *sampler) take(now time.Time) history.Sample {
	in, out, away := s.metrics.stored(), float64(s.metrics.peers.Acked()), s.metrics.rejected.Load()
	latency := s.metrics.peers.Latency.Counts()
	since := latency.Since(s.latency)
	sample := history.Sample{At: now, Rejected: away - s.away}
	if seconds := now.Sub(s.at).Seconds(); seconds > 0 {
		sample.In, sample.Out = (in-s.in)/seconds, (out-s.out)/seconds
	}
	sample.P50, _ = since.Quantile(.5)
	sample.P99, _ = since.Quantile(.99)
	s.at, s.in, s.out, s.away, s.latency = now, in, out, away, latency
	return sample
}
