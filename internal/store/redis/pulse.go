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

// pulse is a generation that all coordinators share and the store's own count. After a split of one server into two,
// the counts of other stores may be ahead on either server, so only the own count proves anything. The generation is
// the time of the first count, so an emptied shard has another generation, and so has a shard after a detected
// rollback.
type pulse struct {
	generation string
	count      int64
}

// pulses remembers the last count of each shard. Scripts that claim get the last count and check the shard themselves,
// because the data may go back behind an open connection: in a failover a master becomes a replica, and a master again.
type pulses struct {
	mu   sync.Mutex
	last []pulse
}

// Pulse counts on in every shard and returns the shards that have lost something since this store's last call. The loss
// may have been found by this call or by a claim, here or in another coordinator. Pulse finds losses of anything
// written before the last call; a loss of only later writes leaves no mark. With an error the reachable shards were
// counted anyway. Calls must not overlap.
func (s *Store) Pulse(ctx context.Context) ([]Regression, error) {
	calls := make([]*call, len(s.keys.shards))
	for i, shard := range s.keys.shards {
		calls[i] = newCall(shard, 3)
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
		// The layout key may be lost as well, and the next coordinator to start would choose another layout.
		if _, err := s.writtenLayout(ctx, s.layout); err != nil {
			failed = translate(err)
		}
	}
	return found, failed
}

// told describes the regression of a shard that was at p.
func (p pulse) told(now pulse) string {
	return fmt.Sprintf("its data are from an earlier time or were replaced: "+
		"it was at count %d of generation %s and is at %d of %s", p.count, p.generation, now.count, now.generation)
}

// seen is the arguments about a shard for a script that checks the pulse: the caller, and the pulse that the caller saw
// last. Before the first count the pulse has no generation.
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
