package redis

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// pulseRetention is how long a count is kept when no coordinator counts on. Coordinators are never all away for so
// long; otherwise their return would look like a loss.
const pulseRetention = 30 * 24 * time.Hour

// Regression says that Redis has lost acknowledged writes of a shard. The data were put back to an earlier time, as
// after a power cut without fsync or a failover to a replica that lagged, or the data are gone.
type Regression struct {
	Shard int
	// What happened to the shard.
	What string
}

// ClockJump says that Redis's clock has jumped since this store's last call, or while no coordinator has looked. Due
// times that were written before are too late or too early.
type ClockJump struct {
	Shard int
	// By is negative for a clock that went back.
	By time.Duration
}

// Pulsed is what a call of Pulse has found.
type Pulsed struct {
	Regressions []Regression
	ClockJumps  []ClockJump
}

// pulse is a generation that all coordinators share and the store's own count. After a split of one server into two,
// the counts of other stores may be ahead on either server, so only the own count proves anything. The generation is
// the time of the first count, so an emptied shard has another generation, and so has a shard after a detected
// rollback.
type pulse struct {
	generation string
	count      int64
	// clock is Redis's clock in milliseconds; asked and answered are when that was, by this process's monotonic clock.
	clock           int64
	asked, answered time.Time
}

// pulses remembers the last count of each shard. Scripts that claim get the last count and check the shard themselves,
// because the data may go back behind an open connection: in a failover a master becomes a replica, and a master again.
type pulses struct {
	mu   sync.Mutex
	last []pulse
	// pruneAt is when the counts of coordinators that are gone are dropped next.
	pruneAt time.Time
}

// pruneAfter is how long after the start, and how often, counts are dropped. If the clock has jumped before the start,
// all living coordinators have counted by the new time then.
const pruneAfter = time.Minute

// Pulse counts on in every shard, and returns the shards that have lost something since this store's last call, and the
// jumps of their clocks. The loss may have been found by this call or by a claim, here or in another coordinator. Pulse
// finds losses of anything written before the last call; a loss of only later writes leaves no mark. With an error the
// reachable shards were counted anyway. Shards whose master is known not to answer are left out. Calls must not
// overlap.
func (s *Store) Pulse(ctx context.Context) (found Pulsed, err error) {
	asked := time.Now()
	prune := asked.After(s.pulses.pruneAt)
	shards, err := s.reachable(ctx)
	calls := make([]*call, len(shards))
	for i, shard := range shards {
		calls[i] = newCall(s.keys.shards[shard], 7)
		calls[i].items = []int{shard}
		last := s.pulses.last[shard]
		calls[i].args = append(append(calls[i].args, s.seen(shard)...), last.passed(asked)...)
		calls[i].args = append(calls[i].args, prune)
	}
	run(ctx, s.loops, s.scripts.pulse, calls)
	answered := time.Now()
	for _, c := range calls {
		i := c.items[0]
		if c.err != nil {
			err = c.err
			continue
		}
		now := readPulse(c)
		now.asked, now.answered = asked, answered
		if last := s.pulses.remember(i, now); last.generation != "" && last.generation != now.generation {
			found.Regressions = append(found.Regressions, Regression{Shard: i, What: last.told(now)})
		}
		if by, _ := c.answer(3).(int64); by != 0 {
			found.ClockJumps = append(found.ClockJumps, ClockJump{Shard: i, By: time.Duration(by) * time.Millisecond})
		}
	}
	if prune && err == nil {
		s.pulses.pruneAt = asked.Add(pruneAfter)
	}
	if len(found.Regressions) > 0 {
		// The layout key may be lost as well, and the next coordinator to start would choose another layout.
		if _, failed := s.writtenLayout(ctx, s.layout); failed != nil {
			err = translate(failed)
		}
	}
	return found, err
}

func readPulse(c *call) (now pulse) {
	now.generation, _ = c.answer(0).(string)
	now.count, _ = c.answer(1).(int64)
	now.clock, _ = c.answer(2).(int64)
	return now
}

// passed is Redis's clock at p, and how many milliseconds have passed since then at least and at most.
func (p pulse) passed(now time.Time) []any {
	return []any{p.clock, now.Sub(p.answered).Milliseconds(), now.Sub(p.asked).Milliseconds()}
}

// told describes the regression of a shard that was at p.
func (p pulse) told(now pulse) string {
	return fmt.Sprintf("its data are from an earlier time or were replaced: "+
		"it was at count %d of generation %s and is at %d of %s", p.count, p.generation, now.count, now.generation)
}

// seen is the arguments about a shard for a script that checks the pulse: the caller, and the pulse that the caller saw
// last. Before the first count the pulse has no generation.
func (s *Store) seen(shard int) []any {
	last := s.pulses.of(shard)
	return []any{s.name, last.generation, last.count}
}

func (p *pulses) of(shard int) pulse {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[shard]
}

func (p *pulses) remember(shard int, now pulse) (last pulse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, p.last[shard] = p.last[shard], now
	return last
}
