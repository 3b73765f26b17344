package console

import (
	"context"
	"time"

	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/console/seen"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// sampler turns what is counted since the start into what happened since the sample before.
type sampler struct {
	metrics *Metrics
	at      time.Time
	in, out float64
	away    int64
	latency seen.Counted
}

// sample keeps one sample after the other for the charts, until the context ends.
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

// take makes a sample of what was counted since the last one.
func (s *sampler) take(now time.Time) history.Sample {
	in, out, away := s.metrics.taken(), float64(s.metrics.board.Acked()), s.metrics.turnedAway.Load()
	latency := s.metrics.board.Latency.Counts()
	since := latency.Since(s.latency)
	sample := history.Sample{At: now, TurnedAway: away - s.away}
	if seconds := now.Sub(s.at).Seconds(); seconds > 0 {
		sample.In, sample.Out = (in-s.in)/seconds, (out-s.out)/seconds
	}
	sample.P50, _ = since.Quantile(.5)
	sample.P99, _ = since.Quantile(.99)
	s.at, s.in, s.out, s.away, s.latency = now, in, out, away, latency
	return sample
}
