package console

import (
	"context"
	"time"

	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// sample adds the counts of this coordinator to the charts until the context ends. The counts of a failed addition are
// missing in the charts: added later, they would be a peak that never was.
func (c *Console) sample(ctx context.Context) {
	if _, none := c.config.Charts.(noCharts); none {
		return
	}
	before := c.config.Metrics.snapshot(time.Now())
	for wait := history.Interval; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		now := c.config.Metrics.snapshot(time.Now())
		at, err := c.config.Charts.Add(ctx, history.NewAddition(now.Since(before), c.counts(ctx)))
		before, wait = now, history.Interval
		if err == nil {
			wait = untilMiddle(at)
		}
	}
}

// untilMiddle is the time until the middle of the next bucket: near its edges, two additions might fall into a bucket,
// and none into the next.
func untilMiddle(now time.Time) time.Duration {
	into := time.Duration(now.UnixNano()) % history.Interval
	return history.Interval - into + history.Interval/2
}

// counts are the messages of each state; nil when they cannot be counted.
func (c *Console) counts(ctx context.Context) map[halfmsg.State]int64 {
	stats, err := c.stats.get(ctx)
	if err != nil {
		return nil
	}
	counts := map[halfmsg.State]int64{}
	for _, stat := range stats {
		counts[stat.State] = stat.Count
	}
	return counts
}
