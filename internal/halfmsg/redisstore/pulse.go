package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
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

// pulses remembers the last count of each shard, and the regressions that nobody was told of yet.
type pulses struct {
	mu    sync.Mutex
	last  map[int]pulse
	found []Regression
	// owed are the shards that went back and that could not be written down as suspect yet.
	owed map[int]bool
}

// pulse is a count that every coordinator counts on. The generation is written once, with the first count, so a shard
// that was emptied has another.
type pulse struct {
	generation string
	count      int64
}

// Pulse counts on in every shard and returns those whose count showed, now or when a connection was made, that Redis has
// forgotten something since this store's last call. It notices what is lost up to the time of that call: what was written
// after it and lost alone leaves no mark. With an error the shards that could be reached were counted all the same.
func (s *Store) Pulse(ctx context.Context) ([]Regression, error) {
	before := s.pulses.snapshot()
	calls := make([]*call, len(s.keys.shards))
	for i, shard := range s.keys.shards {
		calls[i] = newCall(s.scripts.pulse, pulseKey(shard), 2)
		calls[i].args = append(calls[i].args, rand.Text(), pulseRetention.Milliseconds())
	}
	run(ctx, s.loops, s.scripts.pulse, calls)
	var suspects []int
	var failed error
	for i, c := range calls {
		if c.err != nil {
			failed = c.err
			continue
		}
		generation, _ := c.answer(0).(string)
		count, _ := c.answer(1).(int64)
		now := pulse{generation: generation, count: count}
		// Counted on by one, it must be beyond where it was.
		if s.pulses.judge(i, before[i], now, now.count-1) {
			suspects = append(suspects, i)
		}
	}
	if err := s.suspect(ctx, s.loops, suspects); err != nil {
		failed = translate(err)
	}
	return s.pulses.take(), failed
}

// look is made with each new connection, before anything else goes over it: a Redis that has lost something was away
// for a moment, so whoever works with it again has connected anew. Messages of a shard that went back are then flagged
// from the first claim on. Shards that live on other nodes are not looked at.
func (s *Store) look(ctx context.Context, conn *redis.Conn) error {
	before := s.pulses.snapshot()
	if len(before) == 0 {
		return nil
	}
	answers := make(map[int]*redis.SliceCmd, len(before))
	pipe := conn.Pipeline()
	for i := range before {
		answers[i] = pipe.HMGet(ctx, pulseKey(s.keys.shards[i]), "generation", "count")
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	var suspects []int
	for i, answer := range answers {
		var now struct {
			Generation string `redis:"generation"`
			Count      int64  `redis:"count"`
		}
		if err := cmp.Or(answer.Err(), answer.Scan(&now)); elsewhere(err) {
			continue
		} else if err != nil {
			return err // such as LOADING: a connection that was not looked at is not to be used
		}
		if s.pulses.judge(i, before[i], pulse{generation: now.Generation, count: now.Count}, now.Count) {
			suspects = append(suspects, i)
		}
	}
	return s.suspect(ctx, conn, suspects)
}

// elsewhere says that a key lives on another node of the cluster.
func elsewhere(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "CLUSTERDOWN")
}

// suspect writes down that the messages which stand in these shards by now may have been published already, whatever
// their notes say.
func (s *Store) suspect(ctx context.Context, client redis.Cmdable, shards []int) error {
	if len(shards) == 0 {
		return nil
	}
	pipe := client.Pipeline()
	for _, i := range shards {
		pipe.Eval(ctx, s.scripts.suspect.source, []string{suspectKey(s.keys.shards[i])}, pulseRetention.Milliseconds())
	}
	_, err := pipe.Exec(ctx)
	if err == nil {
		s.pulses.paid(shards)
	}
	return err
}

func (p *pulses) paid(shards []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, shard := range shards {
		delete(p.owed, shard)
	}
}

func (p *pulses) snapshot() map[int]pulse {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.last)
}

// judge compares a shard's count with the one from before it was asked for, which counts read meanwhile do not change,
// and remembers the latest. It says whether the shard is to be written down as suspect: it went back now, or that could
// not be written before.
func (p *pulses) judge(shard int, before, now pulse, reached int64) (suspect bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what := ""
	switch {
	case before.generation == "": // the first look
	case now.generation != before.generation:
		what = "its data were replaced or removed"
	case reached < before.count:
		what = fmt.Sprintf("its data are from an earlier time: the count was %d and is %d", before.count, reached)
	}
	if what != "" {
		p.owed[shard] = true
	}
	last := p.last[shard]
	switch {
	case what == "" && (last.generation != now.generation || last.count < now.count):
		p.last[shard] = now
	case what != "" && last == before: // or somebody has told already
		p.last[shard] = now
		p.found = append(p.found, Regression{Shard: shard, What: what})
	}
	return p.owed[shard]
}

// take returns what was found since the last call, each shard once.
func (p *pulses) take() []Regression {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.found
	p.found = nil
	slices.SortStableFunc(found, func(a, b Regression) int { return a.Shard - b.Shard })
	return slices.CompactFunc(found, func(a, b Regression) bool { return a.Shard == b.Shard })
}
