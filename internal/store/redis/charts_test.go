package redis_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
)

var (
	hour = redisstore.Chart{Step: 10 * time.Second, Keep: time.Hour}
	day  = redisstore.Chart{Step: 3 * time.Minute, Keep: 24 * time.Hour}
)

// chartReader adds counts to charts, and reads them.
type chartReader struct{ *testing.T }

func (r chartReader) add(store *redisstore.Store, counts redisstore.ChartCounts) {
	r.Helper()
	if _, err := store.AddToCharts(r.Context(), []redisstore.Chart{hour, day}, counts); err != nil {
		r.Fatal(err)
	}
}

// read returns the fields of the buckets, and how old each bucket is.
func (r chartReader) read(store *redisstore.Store, chart redisstore.Chart, since time.Time) string {
	r.Helper()
	buckets, now, err := store.ReadChart(r.Context(), chart, since)
	must.Succeed(r, err)
	var all []string
	for _, b := range buckets {
		all = append(all, fmt.Sprint(now.Sub(b.At), b.Fields))
	}
	return strings.Join(all, "\n")
}

func TestChartsAddUpAllCoordinators(t *testing.T) {
	t.Parallel()
	r, c := newRuns(t), chartReader{t}
	here, there := r.coordinator("here"), r.coordinator("there")
	counts := func(in int64, producer string) redisstore.ChartCounts {
		return redisstore.ChartCounts{
			Sums: map[string]int64{"in": in}, Latest: map[string]int64{"s/dead": in}, MaxNames: 1,
			Named: []redisstore.NamedCounts{{Kind: "p", Name: producer, Counts: [3]int64{in, 2, 1}}},
		}
	}
	c.add(here, counts(3, "orders"))
	c.add(there, counts(4, "orders"))
	c.add(there, counts(5, "stock"))
	r.pass(10 * time.Second)
	c.add(here, counts(1, "stock"))
	const first = "map[in:12 p#:1 p/:5 2 1 p/orders:7 4 2 s/dead:5]"
	want := "10s " + first + "\n0s map[in:1 p#:1 p/stock:1 2 1 s/dead:1]"
	if got := c.read(there, hour, time.Time{}); got != want {
		t.Errorf("by 10 s:\n%s\nwant\n%s", got, want)
	}
	if got := c.read(there, day, time.Time{}); got != "10s map[in:13 p#:1 p/:6 4 2 p/orders:7 4 2 s/dead:1]" {
		t.Errorf("by 3 min:\n%s", got)
	}
	if got := c.read(here, hour, r.now); got != "0s map[in:1 p#:1 p/stock:1 2 1 s/dead:1]" {
		t.Errorf("only the latest:\n%s", got)
	}
	r.pass(time.Hour)
	if got := c.read(here, hour, time.Time{}); got != "1h0m0s map[in:1 p#:1 p/stock:1 2 1 s/dead:1]" {
		t.Errorf("after an hour:\n%s", got)
	}
}

// A bucket has a bounded number of names, expires, and is no larger than docs/reference/redis.md says.
func TestChartBucketsAreBounded(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 2})
	c := chartReader{t}
	sums, latest := map[string]int64{"in": 1e6, "out": 1e6, "refused": 1e6}, map[string]int64{}
	for class := range 83 {
		sums[fmt.Sprint("l", class)] = 1e6
	}
	for state := range 5 {
		latest[fmt.Sprint("s", state)] = 1e6
	}
	counts := redisstore.ChartCounts{Sums: sums, Latest: latest, MaxNames: 20}
	for i := range 1000 {
		for _, kind := range []string{"p", "e"} {
			name := fmt.Sprintf("%s-%050d", kind, i)
			counts.Named = append(counts.Named, redisstore.NamedCounts{Kind: kind, Name: name, Counts: [3]int64{1, 1e6, 1e6}})
		}
	}
	c.add(store, counts)
	buckets, _, err := store.ReadChart(t.Context(), hour, time.Time{})
	if err != nil || len(buckets) != 1 {
		t.Fatalf("%d buckets, %v", len(buckets), err)
	}
	fields := buckets[0].Fields
	named := maps.Clone(fields)
	maps.DeleteFunc(named, func(field, _ string) bool { return !strings.Contains(field, "/") })
	if others := fields["p/"]; len(named) != 42 || others != "980 980000000 980000000" {
		t.Errorf("%d names, and the others are %q", len(named), others)
	}
	keys := client.Keys(t.Context(), "msghandler:{00b}:chart@*").Val()
	if len(keys) != 2 {
		t.Errorf("the keys are %q", keys)
	}
	for _, key := range keys {
		if size := client.MemoryUsage(t.Context(), key).Val(); size > 8<<10 {
			t.Errorf("%s has %d bytes", key, size)
		}
		if ttl := client.TTL(t.Context(), key).Val(); ttl < time.Hour-time.Minute || ttl > 25*time.Hour {
			t.Errorf("%s expires in %v", key, ttl)
		}
	}
}
