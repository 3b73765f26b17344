package redis

import "context"

// Parked counts the messages that wait for a broker, by the broker's name; the default broker has the empty name. A
// message is counted once a coordinator has claimed for other brokers, whether or not a configuration names its broker.
// Shards whose master is known not to answer are left out.
func (s *Store) Parked(ctx context.Context) (map[string]int64, error) {
	shards, err := s.reachableShards(ctx)
	if err != nil {
		return nil, err
	}
	calls := make([]*call, len(shards))
	for i, shard := range shards {
		calls[i] = newCall(shard, 0)
	}
	run(ctx, s.intake, s.scripts.parked, calls)
	counts := map[string]int64{}
	for _, c := range calls {
		if c.err != nil {
			return nil, c.err
		}
		for i := 0; i+1 < len(c.reply); i += 2 {
			broker, _ := c.reply[i].(string)
			count, _ := c.reply[i+1].(int64)
			counts[broker] += count
		}
	}
	return counts, nil
}
