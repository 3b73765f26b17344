package redis

import (
	"cmp"
	"context"
	"time"
)

// WithDefaults completes the settings that a test does not choose.
func (c Config) WithDefaults() Config {
	c.Prefix, c.Retention = cmp.Or(c.Prefix, "msghandler"), cmp.Or(c.Retention, 10*time.Minute)
	return c
}

// Tags are the hash tags of new data in so many shards.
func Tags(shards int) []string { return layout{version: newestLayout, shards: shards}.tags() }

// SweepBegunOn leaves a sweep in the middle of a master's keys.
func (s *Store) SweepBegunOn(addr string) { s.cursors[addr] = &cursor{next: 1} }

// PruneNow has the next count drop the counts of coordinators that are gone.
func (s *Store) PruneNow() { s.pulses.pruneAt = time.Time{} }

// AwaitReplicas waits for replicas as after a call that stored messages.
func (s *Store) AwaitReplicas(ctx context.Context) error {
	c := newCall(s.keys.shards[0], 0)
	s.awaitReplicas(ctx, s.intake, []*call{c})
	return c.err
}
