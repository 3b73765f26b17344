package console

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/console/history"
)

// memoryCharts are charts in memory, with a clock set by the test.
type memoryCharts struct {
	noCharts
	now     time.Time
	buckets []history.Bucket
	err     error
	read    int
}

func (m *memoryCharts) Read(
	_ context.Context, _ history.Range, since time.Time,
) (found []history.Bucket, now time.Time, err error) {
	for _, b := range m.buckets {
		if !b.At.Before(since) {
			found = append(found, b)
		}
	}
	m.read = len(found)
	return found, m.now, m.err
}

func TestOnlyNewBucketsAreRead(t *testing.T) {
	hour := history.Ranges[0]
	begin := hour.Begin(time.Now())
	m := &memoryCharts{now: begin.Add(3 * time.Second)}
	for i := range int64(360) {
		at := begin.Add(time.Duration(i-359) * hour.Step)
		m.buckets = append(m.buckets, history.Bucket{At: at, In: 10 * i})
	}
	cached := &cachedRange{}
	refresh := func() string {
		cached.refresh(t.Context(), m, hour)
		values := cached.series.Values(func(b history.Bucket) float64 { return b.Rate(b.In) })
		return fmt.Sprint(m.read, len(cached.buckets), values[356:])
	}
	if got := refresh(); got != "360 360 [355 356 357 358]" {
		t.Errorf("at first %s", got)
	}
	// The current bucket is read again, as others may have added to it.
	m.now = m.now.Add(hour.Step)
	m.buckets[359].In = 70
	m.buckets = append(m.buckets, history.Bucket{At: begin.Add(hour.Step), In: 20})
	if got := refresh(); got != "2 361 [356 357 358 7]" {
		t.Errorf("then %s", got)
	}
	// While Redis is away, what was read stays.
	m.err = errors.New("away")
	if refresh(); len(cached.series.Buckets) < 350 || cached.err == nil {
		t.Errorf("without Redis there are %d buckets, %v", len(cached.series.Buckets), cached.err)
	}
	// What is older than the range is forgotten.
	m.err, m.now, m.buckets = nil, m.now.Add(time.Hour+hour.Step), nil
	if got := refresh(); got != "0 0 [NaN NaN NaN NaN]" {
		t.Errorf("an hour later %s", got)
	}
}
