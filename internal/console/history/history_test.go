package history_test

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
)

// fieldsOf are the fields of a bucket after additions, as Redis makes them.
func fieldsOf(additions ...history.Addition) map[string]string {
	sums, named, fields := map[string]int64{}, map[string][3]int64{}, map[string]string{"p#": "2"}
	for _, a := range additions {
		for field, n := range a.Sums {
			sums[field] += n
		}
		for field, n := range a.Latest {
			sums[field] = n
		}
		for _, n := range a.Named {
			all := named[n.Kind+"/"+n.Name]
			for i := range all {
				all[i] += n.Counts[i]
			}
			named[n.Kind+"/"+n.Name] = all
		}
	}
	for field, n := range sums {
		fields[field] = strconv.FormatInt(n, 10)
	}
	for field, n := range named {
		fields[field] = fmt.Sprintf("%d %d %d", n[0], n[1], n[2])
	}
	return fields
}

func TestBucketHasSumsOfCoordinators(t *testing.T) {
	t.Parallel()
	added := func(fast, slow int, dead int64) history.Addition {
		var latency peerstats.Latency
		for range fast {
			latency.Observe(10 * time.Millisecond)
		}
		for range slow {
			latency.Observe(20 * time.Second)
		}
		return history.NewAddition(peerstats.Snapshot{
			In: 7, Out: int64(fast + slow), Refused: 1, Latency: latency.Counts(),
			Producers: map[string]peerstats.ProducerCounts{
				"orders": {Stored: 5, Acked: int64(fast)}, "idle": {}, peerstats.Other: {Refused: 2},
			},
			Exchanges: map[peerstats.ExchangeName]peerstats.ExchangeCounts{{Broker: "events", Name: "a/b"}: {Acked: 3}},
		}, map[halfmsg.State]int64{halfmsg.Dead: dead})
	}
	b := history.NewBucket(time.Unix(1e9, 0), fieldsOf(added(97, 0, 3), added(0, 3, 4)))
	p50, _ := b.Latency.Quantile(.5)
	p99, _ := b.Latency.Quantile(.99)
	if b.In != 14 || b.Out != 100 || b.Refused != 2 || b.Counts[halfmsg.Dead] != 4 || len(b.Counts) != 1 {
		t.Errorf("got %+v", b)
	}
	if p50 < 8*time.Millisecond || p50 > 12*time.Millisecond || p99 < 17*time.Second || p99 > 23*time.Second {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
	if got := b.Named(history.ProducerKind, "orders"); got != [3]int64{10, 97, 0} {
		t.Errorf("the producer has %v", got)
	}
	if got := b.Named(history.ProducerKind, ""); got != [3]int64{0, 0, 4} {
		t.Errorf("others have %v", got)
	}
	if got := b.Named(history.ExchangeKind, history.ExchangeKey("events", "a/b")); got != [3]int64{6, 0, 0} {
		t.Errorf("the exchange has %v", got)
	}
}

// The busiest names come first, because a bucket takes the first names.
func TestTheBusiestNamesComeFirst(t *testing.T) {
	t.Parallel()
	producers := map[string]peerstats.ProducerCounts{}
	for i := range 100 {
		producers[fmt.Sprint(i)] = peerstats.ProducerCounts{Stored: int64(i)}
	}
	named := history.NewAddition(peerstats.Snapshot{Producers: maps.Clone(producers)}, nil).Named
	if len(named) != 99 || named[0].Name != "99" || named[98].Name != "1" {
		t.Errorf("%d names, from %+v to %+v", len(named), named[0], named[len(named)-1])
	}
}

func TestASeriesHasGapsWithoutBuckets(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0).Add(4 * time.Second)
	var buckets []history.Bucket
	for _, age := range []time.Duration{2 * time.Hour, time.Hour, 30 * time.Second, 10 * time.Second, 0} {
		buckets = append(buckets, history.Bucket{At: time.Unix(1e9, 0).Add(-age), In: int64(age.Seconds()) + 20})
	}
	s := history.NewSeries(history.Ranges[0], buckets, now)
	values := s.Values(func(b history.Bucket) float64 { return b.Rate(b.In) })
	if got := fmt.Sprint(len(values), values[0], values[1], values[356:]); got != "360 362 NaN [NaN 5 NaN 3]" {
		t.Errorf("the values are %s", got)
	}
	if latest, known := s.Latest(); !known || latest.In != 30 || !latest.At.Equal(s.TimeOf(359)) {
		t.Errorf("the latest is %+v, %t", latest, known)
	}
	if _, known := history.NewSeries(history.Ranges[0], buckets, now.Add(10*time.Second)).Latest(); !known {
		t.Error("the bucket of the last interval is not the latest")
	}
	if _, known := history.NewSeries(history.Ranges[0], buckets, now.Add(20*time.Second)).Latest(); known {
		t.Error("a bucket before a gap is the latest")
	}
}

// The current bucket of a long range is drawn once enough of its time is over, with the rate of that time.
func TestLongBucketIsDrawnEarly(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_200_000_000, 0)
	bucket := []history.Bucket{{At: at, In: 600}}
	week := history.Ranges[2]
	if s := history.NewSeries(week, bucket, at.Add(29*time.Second)); len(s.Buckets) != 0 {
		t.Errorf("after 29 s there are %v", s.Buckets)
	}
	s := history.NewSeries(week, bucket, at.Add(time.Minute))
	if values := s.Values(func(b history.Bucket) float64 { return b.Rate(b.In) }); values[len(values)-1] != 10 {
		t.Errorf("after a minute the rate is %v", values[len(values)-1])
	}
}

func TestALineIsInterruptedByGaps(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	line := history.NewLine([]float64{0, 50, nan, 100, nan, 25}, history.Axis{Marks: []float64{0, 100}})
	if want := "M50.0 100.0L150.0 50.0M300.0 0.0H400.0M500.0 75.0H600.0"; line.Path != want {
		t.Errorf("path %s, want %s", line.Path, want)
	}
	if want := "M50.0 100V100.0L150.0 50.0V100M300.0 100V0.0H400.0V100M500.0 100V75.0H600.0V100"; line.Area != want {
		t.Errorf("area %s, want %s", line.Area, want)
	}
	if line.Top != 100 || line.Last != 25 || !line.Known {
		t.Errorf("got %+v", line)
	}
	if none := history.NewLine([]float64{nan}, history.Linear()); none.Known || none.Path != "" || !math.IsNaN(none.Last) {
		t.Errorf("got %+v", none)
	}
}

func TestScalesHaveRoundValues(t *testing.T) {
	t.Parallel()
	for top, want := range map[float64]string{
		0: "[0 1]", .3: "[0 0.1 0.2 0.30000000000000004]", 7: "[0 2 4 6 8]", 1480: "[0 500 1000 1500]",
	} {
		if got := fmt.Sprint(history.Scale(top)); got != want {
			t.Errorf("up to %v: %s, want %s", top, got, want)
		}
	}
}

func TestTicksAreRoundTimes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 13, 47, 3, 0, time.UTC)
	for name, want := range map[string]string{
		"15m": "[26 13:35 26 13:40 26 13:45]",
		"1h":  "[26 13:00 26 13:15 26 13:30 26 13:45]", "1d": "[25 18:00 26 00:00 26 06:00 26 12:00]",
		"1w": "[20 00:00 21 00:00 22 00:00 23 00:00 24 00:00 25 00:00 26 00:00]",
	} {
		var got []string
		w := history.PresetOf(name)
		for _, tick := range history.NewSeries(w.Range, nil, now).In(w).Ticks() {
			got = append(got, tick.At.Format("02 15:04"))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
}

// A day with an outage is drawn at the height of the day, and what is above is told.
func TestOneOutageDoesNotFlattenDay(t *testing.T) {
	t.Parallel()
	day := make([]float64, 480)
	for i := range day {
		day[i] = 100 + float64(i%7)
	}
	if a := history.Linear(day); a.Cut || a.Marks[len(a.Marks)-1] != 150 {
		t.Errorf("without an outage the axis is %+v", a)
	}
	day[200], day[201] = 42_000, 38_000
	a := history.Linear(day, []float64{math.NaN(), 0})
	if end := a.Marks[len(a.Marks)-1]; !a.Cut || end != 150 || a.Place(42_000) != 1 || a.Place(75) != .5 ||
		a.Place(0) != 0 {
		t.Errorf("with an outage the axis is %+v", a)
	}
	if few := history.Linear([]float64{1, 2, 900}); few.Cut {
		t.Errorf("three values are cut: %+v", few)
	}
}

func TestTimesStandOnLogarithmicAxis(t *testing.T) {
	t.Parallel()
	for want, values := range map[string][]float64{
		"[0.001 0.01 0.1 1]": {math.NaN()}, "[0.001 0.01 0.1 1 10 60 600]": {.004, 90},
		"[0.001 0.01]": {.01}, "[36000 86400]": {1e9}, "[10 60]": {10, 60},
	} {
		a := history.Times(values)
		if got := fmt.Sprint(a.Marks); got != want {
			t.Errorf("of %v: %s, want %s", values, got, want)
		}
		last := a.Marks[len(a.Marks)-1]
		if a.Place(a.Marks[0]) != 0 || a.Place(0) != 0 || a.Place(last) != 1 || a.Cut != (values[0] == 1e9) {
			t.Errorf("of %v: %+v", values, a)
		}
	}
	if place := history.Times([]float64{.001, 10}).Place(.1); math.Abs(place-.5) > 1e-9 {
		t.Errorf("a tenth of a second is at %v", place)
	}
}

// A free window has the finest buckets that reach back to its beginning.
func TestWindowsShowPartsOfSeries(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 13, 47, 3, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, c := range []struct {
		from, until time.Duration
		step        time.Duration
		first       string
		values      int
	}{
		{20 * time.Minute, 10 * time.Minute, 10 * time.Second, "26 13:27:00", 61},
		{11 * time.Hour, 10 * time.Hour, 3 * time.Minute, "26 02:45:00", 21},
		{50 * time.Hour, 49 * time.Hour, 20 * time.Minute, "24 11:40:00", 4},
		{10 * time.Minute, 0, 10 * time.Second, "26 13:37:00", 60},
		{1000 * time.Hour, 0, 20 * time.Minute, "19 14:00:00", 504},
		{time.Second, 0, 10 * time.Second, "26 13:46:50", 1},
	} {
		w := history.Between(ago(c.from), ago(c.until), now)
		s := history.NewSeries(w.Range, nil, now).In(w)
		values := s.Values(func(history.Bucket) float64 { return 0 })
		if got := s.TimeOf(0).UTC().Format("02 15:04:05"); got != c.first || len(values) != c.values ||
			s.Range.Step != c.step || s.Span() != time.Duration(c.values)*c.step {
			t.Errorf("from %v to %v ago: %d steps of %v from %s", c.from, c.until, len(values), s.Range.Step, got)
		}
	}
	quarter := history.PresetOf("15m")
	bucket := history.Bucket{At: ago(33 * time.Second).Truncate(10 * time.Second), In: 50}
	s := history.NewSeries(quarter.Range, []history.Bucket{bucket}, now)
	values := s.In(quarter).Values(func(b history.Bucket) float64 { return b.Rate(b.In) })
	if len(values) != 90 || values[87] != 5 || s.In(quarter).PlaceOf(now) != 100 {
		t.Errorf("the last quarter of an hour is %v", values)
	}
}
