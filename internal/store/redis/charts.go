package redis

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Chart is a series of buckets of counts over all coordinators.
type Chart struct {
	// Step is the time of a bucket, and Keep how long a bucket is kept.
	Step, Keep time.Duration
}

// ChartCounts are counts to add to the current bucket of charts.
type ChartCounts struct {
	// Sums are added to the sums of the bucket, by field.
	Sums map[string]int64
	// Latest replace values of the bucket, by field.
	Latest map[string]int64
	// Named are added to the counts of names.
	Named []NamedCounts
	// MaxNames is how many names of a kind a bucket holds. Further names are counted under the name "".
	MaxNames int
}

// NamedCounts are counts of a name. A kind is a short word without "/" and "#".
type NamedCounts struct {
	Kind, Name string
	Counts     [3]int64
}

// ChartBucket has the fields of a bucket.
type ChartBucket struct {
	At     time.Time
	Fields map[string]string
}

// AddToCharts adds counts to the current bucket of each chart, and returns the time by Redis' clock. AddToCharts is one
// script call for each chart in a single pipeline. Errors are the store's; after an error, counts may have been added.
func (s *Store) AddToCharts(ctx context.Context, charts []Chart, counts ChartCounts) (time.Time, error) {
	calls := make([]*call, len(charts))
	for i, chart := range charts {
		c := newCall(s.keys.shards[0], 6+2*len(counts.Sums)+2*len(counts.Latest)+5*len(counts.Named))
		c.args = append(c.args, chart.Step.Milliseconds(), chart.Keep.Milliseconds(), counts.MaxNames)
		for _, fields := range []map[string]int64{counts.Sums, counts.Latest} {
			c.args = append(c.args, len(fields))
			for field, n := range fields {
				c.args = append(c.args, field, n)
			}
		}
		for _, n := range counts.Named {
			c.args = append(c.args, n.Kind, n.Name, n.Counts[0], n.Counts[1], n.Counts[2])
		}
		calls[i] = c
	}
	run(ctx, s.loops, s.scripts.charts, calls)
	var now time.Time
	for _, c := range calls {
		if c.err != nil {
			return time.Time{}, c.err
		}
		ms, _ := c.answer(0).(int64)
		now = time.UnixMilli(ms)
	}
	return now, nil
}

// ReadChart returns the buckets of a chart that begin at a time or later, the oldest first, and the time by Redis'
// clock. A bucket without counts is missing. Errors are the store's.
func (s *Store) ReadChart(ctx context.Context, chart Chart, since time.Time) ([]ChartBucket, time.Time, error) {
	now, err := s.intake.Time(ctx).Result()
	if err != nil {
		return nil, time.Time{}, translate(err)
	}
	first := max(numberOf(since, chart), numberOf(now.Add(-chart.Keep), chart))
	last := numberOf(now, chart)
	cmds := make([]*redis.MapStringStringCmd, max(0, last-first+1))
	err = s.pipelined(ctx, len(cmds), func(pipe redis.Pipeliner, i int) {
		cmds[i] = pipe.HGetAll(ctx, chartKey(s.keys.shards[0], chart, first+int64(i)))
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	var buckets []ChartBucket
	for i, cmd := range cmds {
		if fields := cmd.Val(); len(fields) > 0 {
			at := time.UnixMilli((first + int64(i)) * chart.Step.Milliseconds())
			buckets = append(buckets, ChartBucket{At: at, Fields: fields})
		}
	}
	return buckets, now, nil
}

// numberOf is the number of the bucket of a time.
func numberOf(t time.Time, chart Chart) int64 { return t.UnixMilli() / chart.Step.Milliseconds() }

// chartKey is the key of a bucket.
func chartKey(shard string, chart Chart, number int64) string {
	return shard + chartPrefix + strconv.FormatInt(chart.Step.Milliseconds(), 10) + ":" + strconv.FormatInt(number, 10)
}
