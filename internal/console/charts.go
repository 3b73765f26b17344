package console

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/console/history"
)

// Charts keep the counts of all coordinators. Their times are those of the store's clock.
type Charts interface {
	// Add adds counts to the current bucket of each range, and returns the time.
	Add(ctx context.Context, counts history.Addition) (time.Time, error)
	// Read returns the buckets of a range that begin at a time or later, the oldest first, and the time.
	Read(ctx context.Context, r history.Range, since time.Time) ([]history.Bucket, time.Time, error)
}

// errNoCharts is the error of noCharts.
var errNoCharts = errors.New("charts are not kept")

// noCharts are the charts of a console without a store.
type noCharts struct{}

func (noCharts) Add(context.Context, history.Addition) (time.Time, error) {
	return time.Time{}, errNoCharts
}

func (noCharts) Read(context.Context, history.Range, time.Time) ([]history.Bucket, time.Time, error) {
	return nil, time.Time{}, errNoCharts
}

// chartCache keeps what was read of the charts. A bucket does not change after its end, so that only new buckets are
// read.
type chartCache struct {
	charts Charts

	mu     sync.Mutex
	ranges map[history.Range]*cachedRange
}

// cachedRange has the buckets of a range.
type cachedRange struct {
	mu      sync.Mutex
	buckets []history.Bucket
	// since is when the bucket began that was the current one at the last reading.
	since  time.Time
	readAt time.Time
	series history.Series
	err    error
}

func newChartCache(charts Charts) *chartCache {
	return &chartCache{charts: charts, ranges: map[history.Range]*cachedRange{}}
}

// get returns a range, at most statsInterval old. With an error there are the buckets that were read before.
func (c *chartCache) get(ctx context.Context, r history.Range) (history.Series, error) {
	c.mu.Lock()
	cached := c.ranges[r]
	if cached == nil {
		cached = &cachedRange{}
		c.ranges[r] = cached
	}
	c.mu.Unlock()
	cached.mu.Lock()
	defer cached.mu.Unlock()
	if cached.readAt.IsZero() || time.Since(cached.readAt) >= statsInterval {
		cached.refresh(ctx, c.charts, r)
	}
	return cached.series, cached.err
}

// refresh reads the buckets that are new or may have changed.
func (c *cachedRange) refresh(ctx context.Context, charts Charts, r history.Range) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statsTimeout)
	defer cancel()
	read, now, err := charts.Read(ctx, r, c.since)
	c.readAt, c.err = time.Now(), err
	if err != nil {
		c.series = history.NewSeries(r, c.buckets, time.Now())
		return
	}
	var kept []history.Bucket
	for _, b := range c.buckets {
		if b.At.Before(c.since) && now.Sub(b.At) <= r.Span+r.Step {
			kept = append(kept, b)
		}
	}
	c.buckets = slices.Concat(kept, read)
	c.since = r.Begin(now)
	c.series = history.NewSeries(r, c.buckets, now)
}
