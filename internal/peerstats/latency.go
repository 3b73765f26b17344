package peerstats

import (
	"math"
	"sync/atomic"
	"time"
)

// The bounds of the classes grow by a quarter, from a millisecond to a day, so a quantile is off by an eighth at most.
var bounds = func() (all []time.Duration) {
	for d := float64(time.Millisecond); d < float64(24*time.Hour); d *= 1.25 {
		all = append(all, time.Duration(d))
	}
	return all
}()

// classes is the number of bounds plus a class above all bounds.
const classes = 83

// Latency counts durations by class. A Latency is safe for concurrent use.
type Latency [classes]atomic.Uint64

// Counted is a snapshot of a Latency.
type Counted [classes]uint64

// Observe counts a duration.
func (l *Latency) Observe(d time.Duration) { l[class(d)].Add(1) }

// class is the first whose bound is not below d.
func class(d time.Duration) int {
	if d <= bounds[0] {
		return 0
	}
	n := int(math.Ceil(math.Log(float64(d)/float64(bounds[0])) / math.Log(1.25)))
	return min(n, classes-1)
}

// Counts gives the counts of now.
func (l *Latency) Counts() (c Counted) {
	for i := range l {
		c[i] = l[i].Load()
	}
	return c
}

// Since is the difference to an earlier snapshot.
func (c Counted) Since(before Counted) Counted {
	for i := range c {
		c[i] -= before[i]
	}
	return c
}

// Total is how many durations were counted.
func (c Counted) Total() (n uint64) {
	for _, count := range c {
		n += count
	}
	return n
}

// Quantile is the q-quantile of the durations, as the middle of its class, and false without durations.
func (c Counted) Quantile(q float64) (time.Duration, bool) {
	total := c.Total()
	if total == 0 {
		return 0, false
	}
	rank, sum := uint64(math.Ceil(q*float64(total))), uint64(0)
	for i, count := range c {
		if sum += count; sum >= rank && count > 0 {
			return middle(i), true
		}
	}
	return middle(classes - 1), true
}

func middle(class int) time.Duration {
	switch {
	case class == 0:
		return bounds[0]
	case class >= len(bounds):
		return bounds[len(bounds)-1]
	}
	return (bounds[class-1] + bounds[class]) / 2
}
