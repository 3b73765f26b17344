package redis

// Tags are those of new data in so many shards.
func Tags(shards int) []string { return layout{version: newestLayout, shards: shards}.tags() }

// SweepBegunOn leaves a sweep in the middle of a master's keys.
func (s *Store) SweepBegunOn(addr string) { s.cursors[addr] = &cursor{next: 1} }
