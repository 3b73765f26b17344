package redis

import "context"

// weighed is how many records of each state one look reads at most, of each producer in each shard.
const weighed = 100

// Weigh returns how many bytes the records of unfinished messages take, for each of the producers. Up to weighed
// messages of a state are counted exactly; of more, a random sample counts for all.
func (s *Store) Weigh(ctx context.Context, producers []string) ([]int64, error) {
	calls := make([]*call, len(s.keys.shards))
	for i, shard := range s.keys.shards {
		calls[i] = newCall(shard, 1+len(producers))
		calls[i].args = append(calls[i].args, weighed)
		for _, producer := range producers {
			calls[i].args = append(calls[i].args, producer)
		}
	}
	run(ctx, s.loops, s.scripts.weigh, calls)
	bytes := make([]int64, len(producers))
	for _, c := range calls {
		if c.err != nil {
			return nil, c.err
		}
		for i := range bytes {
			n, _ := c.answer(i).(int64)
			bytes[i] += n
		}
	}
	return bytes, nil
}
