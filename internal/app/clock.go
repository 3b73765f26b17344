package app

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/operate"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// jumpMemory is for how long a jump of Redis's clock stands among the findings.
const jumpMemory = time.Hour

// redisClock knows the last jump of Redis's clock, and how many sweeps through all keys still have to repair due times.
type redisClock struct {
	last   atomic.Pointer[clockJump]
	sweeps atomic.Int32
}

// clockJump is a jump of the clocks of some shards.
type clockJump struct {
	at     time.Time
	shards int
	by     time.Duration // the largest
}

func (j *clockJump) String() string {
	way := "forward"
	if j.by < 0 {
		way = "back"
	}
	return fmt.Sprintf("Redis's clock jumped %s by %s at %s (%d shards)",
		way, operate.Duration(j.by.Abs()), clock(j.at), j.shards)
}

// swept counts a sweep through all keys.
func (c *redisClock) swept() {
	if n := c.sweeps.Load(); n > 0 {
		c.sweeps.CompareAndSwap(n, n-1)
	}
}

const (
	jumpConsequence = "due times, leases and receipts moved: messages were early, or wait for the sweeper's repair; " +
		"copies are flagged where receipts were lost"
	jumpRemedy = "keep the clocks of all Redis servers right with a time service that slews, such as chrony"
)

// tellClockJumps reports that Redis's clock has jumped, and asks for a sweep of all keys. The present sweep may have
// passed some of them. Counts of other coordinators prove nothing until all have counted by the new time.
func (a *App) tellClockJumps(found []redisstore.ClockJump) {
	worst := slices.MaxFunc(found, func(one, two redisstore.ClockJump) int {
		return cmp.Compare(one.By.Abs(), two.By.Abs())
	})
	jump := &clockJump{at: time.Now(), shards: len(found), by: worst.By}
	a.redis.clock.last.Store(jump)
	a.redis.clock.sweeps.Store(2)
	a.peers.Doubt(jump.at)
	a.logger.Warn("Redis's clock jumped: due times, leases and receipts moved with the clock; the sweeper repairs them",
		"by_ms", jump.by.Milliseconds(), "shard_count", jump.shards, "remedy", jumpRemedy)
}

// clockJump reports a jump of Redis's clock.
func (f *findings) clockJump(jump *clockJump, now time.Time) {
	if jump != nil && now.Sub(jump.at) < jumpMemory {
		p := f.add(warning, "redis-clock-jumped", jump.String(), jumpConsequence, jumpRemedy)
		p.Since, p.Until = jump.at, jump.at
	}
}
