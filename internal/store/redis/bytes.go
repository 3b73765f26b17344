package redis

import "context"

// weighed is how many records of each state one look reads at most, of each producer in each shard.
const weighed = 100

// weighedTogether is how many producers one call weighs, so that no call keeps Redis from others for long.
const weighedTogether = 10

// UnfinishedBytes returns how many bytes the records of unfinished messages take, for each of the producers. Up to
// weighed messages of a state are counted exactly; of more, a random sample counts for all. Shards whose master is
// known not to answer are left out.
func (s *Store) UnfinishedBytes(ctx context.Context, producers []string) ([]int64, error) {
	shards, err := s.reachableShards(ctx)
	if err != nil {
		return nil, err
	}
	var calls []*call
	for _, shard := range shards {
		for from := 0; from < len(producers); from += weighedTogether {
			some := producers[from:min(from+weighedTogether, len(producers))]
			c := newCall(shard, 1+len(some))
			c.args, c.items, c.messages = append(append(c.args, weighed), anys(some)...), []int{from}, len(some)
			calls = append(calls, c)
		}
	}
	s.pacer.lowPriority(weighedTogether, noRests)(ctx, s.loops, s.scripts.bytes, calls)
	bytes := make([]int64, len(producers))
	for _, c := range calls {
		if c.err != nil {
			return nil, c.err
		}
		for i := range c.messages {
			bytes[c.items[0]+i] += counted(c, i)
		}
	}
	return bytes, nil
}
