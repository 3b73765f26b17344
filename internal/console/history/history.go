// Package history draws what happened within the last hour, day or week, from counts of all coordinators.
//
// The counts are in buckets that all coordinators share. A coordinator adds its own counts to the current bucket of
// each range, so a bucket has the sums.
package history

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
)

// Interval is how often a coordinator adds its counts: once to each bucket of the shortest range.
const Interval = 10 * time.Second

// MaxNames is how many producers, and how many exchanges, a bucket holds.
const MaxNames = 20

// Range is how far back buckets of a time are kept.
type Range struct{ Span, Step time.Duration }

// Ranges are the kept buckets, the finest first.
var Ranges = []Range{
	{time.Hour, Interval},
	{24 * time.Hour, 3 * time.Minute},
	{Kept, 20 * time.Minute},
}

// Begin is when the bucket of a time begins.
func (r Range) Begin(t time.Time) time.Time { return floor(t, r.Step) }

// floor is the last multiple of a step up to a time.
func floor(t time.Time, step time.Duration) time.Time {
	return time.UnixMilli(t.UnixMilli() - t.UnixMilli()%step.Milliseconds())
}

// Named are the counts of a producer or an exchange.
type Named struct {
	Kind, Name string
	Counts     [3]int64
}

// The kinds of Named.
const (
	ProducerKind = "p"
	ExchangeKind = "e"
)

// ExchangeKey is the name of an exchange in Named.
func ExchangeKey(broker, name string) string { return broker + "/" + name }

// Addition is what a coordinator adds to the current buckets.
type Addition struct {
	// Sums are added, by field.
	Sums map[string]int64
	// Latest replace the values of other coordinators, by field.
	Latest map[string]int64
	Named  []Named
}

// The fields of a bucket. docs/reference/redis.md lists them.
const (
	inField      = "in"
	outField     = "out"
	refusedField = "refused"
	latencyField = "l"
	stateField   = "s/"
)

// NewAddition is the form of what was added since the previous addition. Counts are the messages of each state; nil
// when the messages could not be counted.
func NewAddition(added peerstats.Snapshot, counts map[halfmsg.State]int64) Addition {
	a := Addition{
		Sums:   map[string]int64{inField: added.In, outField: added.Out, refusedField: added.Refused},
		Latest: map[string]int64{},
	}
	for class, n := range added.Latency {
		if n > 0 {
			a.Sums[latencyField+strconv.Itoa(class)] = int64(n) //nolint:gosec // a count of messages
		}
	}
	for state, n := range counts {
		a.Latest[stateField+state.String()] = n
	}
	for name, n := range added.Producers {
		a.name(ProducerKind, name, [3]int64{n.Stored, n.Acked, n.Refused})
	}
	for name, n := range added.Exchanges {
		a.name(ExchangeKind, ExchangeKey(name.Broker, name.Name), [3]int64{n.Acked, n.Refused, n.Unclear})
	}
	// The busiest come first, because a bucket takes the first names.
	slices.SortStableFunc(a.Named, func(x, y Named) int { return int(y.total() - x.total()) })
	return a
}

func (n Named) total() int64 { return n.Counts[0] + n.Counts[1] + n.Counts[2] }

// name adds the counts of a name, unless nothing happened. What the coordinator counts as others gets no name.
func (a *Addition) name(kind, name string, counts [3]int64) {
	if name == peerstats.Other || name == ExchangeKey("", peerstats.Other) {
		name = ""
	}
	if n := (Named{kind, name, counts}); n.total() > 0 {
		a.Named = append(a.Named, n)
	}
}

// Bucket has the counts of all coordinators within the step of a range.
type Bucket struct {
	At time.Time
	// For is how much of the bucket's time is over.
	For              time.Duration
	In, Out, Refused int64
	Latency          peerstats.Counted
	// Counts are the messages of each state; nil when they could not be counted.
	Counts map[halfmsg.State]int64

	named map[string][3]int64
}

// Named are the counts of a producer or an exchange in the bucket.
func (b Bucket) Named(kind, name string) [3]int64 { return b.named[kind+"/"+name] }

// NewBucket reads the fields of a bucket. Unknown fields come from a version to come.
func NewBucket(at time.Time, fields map[string]string) Bucket {
	b := Bucket{At: at, named: map[string][3]int64{}}
	for field, value := range fields {
		if kind, _, found := strings.Cut(field, "/"); found && kind != strings.TrimSuffix(stateField, "/") {
			var n [3]int64
			if _, err := fmt.Sscan(value, &n[0], &n[1], &n[2]); err == nil {
				b.named[field] = n
			}
			continue
		}
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			b.set(field, n)
		}
	}
	return b
}

// set sets a field with a single number.
func (b *Bucket) set(field string, n int64) {
	switch field {
	case inField:
		b.In = n
	case outField:
		b.Out = n
	case refusedField:
		b.Refused = n
	}
	if class, err := strconv.Atoi(strings.TrimPrefix(field, latencyField)); err == nil && class >= 0 &&
		class < len(b.Latency) {
		b.Latency[class] = uint64(n) //nolint:gosec // a count of messages
	}
	name, found := strings.CutPrefix(field, stateField)
	for _, state := range halfmsg.Unfinished() {
		if found && state.String() == name {
			if b.Counts == nil {
				b.Counts = map[halfmsg.State]int64{}
			}
			b.Counts[state] = n
		}
	}
}

// Rate is a count of the bucket a second.
func (b Bucket) Rate(n int64) float64 { return float64(n) / b.For.Seconds() }

// Series are the buckets of a range, the oldest first. A time without counts has no bucket.
type Series struct {
	Range   Range
	Now     time.Time
	Buckets []Bucket

	// first is when the first step begins, and count is the number of steps.
	first time.Time
	count int
}

// leastFor is how much of a longer bucket's time must be over before the bucket is drawn.
const leastFor = 30 * time.Second

// NewSeries makes a series. Buckets that have just begun are left out: not every coordinator has added to them.
func NewSeries(r Range, buckets []Bucket, now time.Time) Series {
	s := Series{Range: r, Now: now, count: int(r.Span / r.Step)}
	s.first = r.Begin(now.Add(-min(r.Step, leastFor))).Add(-time.Duration(s.count-1) * r.Step)
	for _, b := range buckets {
		b.For = min(r.Step, now.Sub(b.At))
		if b.At.After(now.Add(-r.Span-r.Step)) && b.For >= min(r.Step, leastFor) {
			s.Buckets = append(s.Buckets, b)
		}
	}
	return s
}

// Values are the values of the steps of the range, the oldest first. NaN is a gap.
func (s Series) Values(value func(Bucket) float64) []float64 {
	values := make([]float64, s.count)
	for i := range values {
		values[i] = math.NaN()
	}
	for _, b := range s.Buckets {
		if i := int(b.At.Sub(s.first) / s.Range.Step); !b.At.Before(s.first) && i < len(values) {
			values[i] = value(b)
		}
	}
	return values
}

// TimeOf is when a step begins.
func (s Series) TimeOf(step int) time.Time { return s.first.Add(time.Duration(step) * s.Range.Step) }

// Latest is the newest bucket that is drawn, if it is known.
func (s Series) Latest() (Bucket, bool) {
	if n := len(s.Buckets); n > 0 && s.Buckets[n-1].At.Equal(s.TimeOf(s.count-1)) {
		return s.Buckets[n-1], true
	}
	return Bucket{}, false
}
