package redis

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// pulseRetention is how long a count is kept when no coordinator counts on: far longer than all of them are away, or
// their return would look like a loss.
const pulseRetention = 30 * 24 * time.Hour

// Regression says that a part of the data is not what Redis had acknowledged: it was put back to an earlier time, as
// after a power cut without fsync or a failover to a replica that lagged, or it is gone.
type Regression struct {
	Shard int
	// What happened to it.
	What string
}

// pulse is a generation that all coordinators share and a count that is the store's own: of two servers that were one,
// and went on apart, one may be ahead in what others count. The generation is the time of the first count, so a shard
// that was emptied has another; and so has one that was found to have gone back.
type pulse struct {
	generation string
	count      int64
}

// pulses remembers the last count of each shard. Scripts that claim are told of it and look at the shard themselves, as
// its data may go back behind a connection that stays: in a failover a master becomes a replica, and a master again.
type pulses struct {
	mu   sync.Mutex
	last []pulse
}

// Pulse counts on in every shard and returns those of which this or a claim, here or in another coordinator, has shown
// since this store's last call that Redis has forgotten something. It notices what is lost up to the time of that call:
// what was written after it and lost alone leaves no mark. With an error the shards that could be reached were counted
// all the same. Its calls must not overlap.
func (s *Store) Pulse(ctx context.Context) ([]Regression, error) {
	calls := make([]*call, len(s.keys.shards))
	for i, shard := range s.keys.shards {
		calls[i] = newCall(s.scripts.pulse, shard, 3)
		calls[i].args = append(calls[i].args, s.seen(i)...)
	}
	run(ctx, s.loops, s.scripts.pulse, calls)
	var found []Regression
	var failed error
	for i, c := range calls {
		if c.err != nil {
			failed = c.err
			continue
		}
		generation, _ := c.answer(0).(string)
		count, _ := c.answer(1).(int64)
		now := pulse{generation: generation, count: count}
		if last := s.pulses.remember(i, now); last.generation != "" && last.generation != now.generation {
			found = append(found, Regression{Shard: i, What: last.told(now)})
		}
	}
	if len(found) > 0 {
		// What was written down of the layout may be lost as well, and whoever starts next would choose another.
		if _, err := s.writtenLayout(ctx, s.layout); err != nil {
			failed = translate(err)
		}
	}
	return found, failed
}

// told says what there is to say of a shard that was at p.
func (p pulse) told(now pulse) string {
	return fmt.Sprintf("its data are from an earlier time or were replaced: "+
		"it was at count %d of generation %s and is at %d of %s", p.count, p.generation, now.count, now.generation)
}

// seen is what a script that looks is told of a shard: who asks, and what it saw last. Before the first count that is
// no generation.
func (s *Store) seen(shard int) []any {
	s.pulses.mu.Lock()
	defer s.pulses.mu.Unlock()
	last := s.pulses.last[shard]
	return []any{s.name, last.generation, last.count}
}

func (p *pulses) remember(shard int, now pulse) (last pulse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, p.last[shard] = p.last[shard], now
	return last
}
