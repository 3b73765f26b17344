// Package pacing decides how long a backlog yields to fresh work. The send stage paces its batches by a Clock, and the
// Redis store paces its script calls.
package pacing

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// freshFor is how long the backlog yields after fresh work has come.
	freshFor = time.Second
	// IdleGap is the pause that ends a backlog: backlog that comes after a longer pause is another backlog.
	IdleGap = 250 * time.Millisecond
)

// Clock says when the backlog yields: while fresh work comes, but at most for maxYield. A backlog that lasts longer is
// too large to yield all the time. A Clock is safe for concurrent use and takes no lock.
type Clock struct {
	maxYield time.Duration
	// started is the zero of the times below, which are monotonic nanoseconds.
	started time.Time
	// freshAt and backlogAt are when work of each kind came last, backlogSince is when the present backlog began.
	freshAt, backlogAt, backlogSince atomic.Int64
}

// NewClock returns a Clock that has seen no work.
func NewClock(maxYield time.Duration) *Clock {
	c := &Clock{maxYield: maxYield, started: time.Now()}
	for _, at := range []*atomic.Int64{&c.freshAt, &c.backlogAt, &c.backlogSince} {
		at.Store(math.MinInt64 / 2) // never
	}
	return c
}

func (c *Clock) now() int64 { return int64(time.Since(c.started)) }

// Fresh records that fresh work has come.
func (c *Clock) Fresh() { c.freshAt.Store(c.now()) }

// Backlog records that backlog has come.
func (c *Clock) Backlog() {
	now := c.now()
	if time.Duration(now-c.backlogAt.Swap(now)) > IdleGap {
		c.backlogSince.Store(now)
	}
}

// Yields says whether the backlog yields now.
func (c *Clock) Yields() bool {
	now := c.now()
	return time.Duration(now-c.freshAt.Load()) < freshFor && time.Duration(now-c.backlogSince.Load()) < c.maxYield
}
