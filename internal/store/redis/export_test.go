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

// MasterTimeout is for how long a call to a silent master waits.
const MasterTimeout = masterTimeout

// Tags are the hash tags of new data in so many shards.
func Tags(shards int) []string { return layout{version: newestLayout, shards: shards}.tags() }

// SweepBegunOn leaves a sweep in the middle of a master's keys.
func (s *Store) SweepBegunOn(addr string) { s.cursors[addr] = &cursor{next: 1} }

// PruneNow has the next count drop the counts of coordinators that are gone.
func (s *Store) PruneNow() { s.pulses.pruneAt = time.Time{} }

// LookWithFullPool looks at all masters of a Cluster once, while the loops' connections to one of them are in use.
func (s *Store) LookWithFullPool(ctx context.Context) error {
	master, err := s.loops.(*cluster).MasterForKey(ctx, s.keys.shards[0])
	if err != nil {
		return err
	}
	for range master.Options().PoolSize {
		conn := master.Conn()
		if err := conn.Ping(ctx).Err(); err != nil {
			return err
		}
		defer conn.Close()
	}
	s.breakers.look(ctx)
	return nil
}

// AwaitReplicas waits for replicas as after a call that stored messages.
func (s *Store) AwaitReplicas(ctx context.Context) error {
	c := newCall(s.keys.shards[0], 0)
	s.awaitReplicas(ctx, s.intake, []*call{c})
	return c.err
}
