package redis

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// WithDefaults completes the settings that a test does not choose.
func (c Config) WithDefaults() Config {
	c.Prefix, c.Retention = cmp.Or(c.Prefix, "msghandler"), cmp.Or(c.Retention, 10*time.Minute)
	return c
}

// MasterTimeout is for how long a call to a silent master waits.
const MasterTimeout = masterTimeout

// Indexed has new messages stored in the indexes at once.
func Indexed(c Config) Config {
	c.indexed = true
	return c
}

// Tags are the hash tags of new data in so many shards.
func Tags(shards int) []string { return layout{shards: shards}.tags() }

// SweepBegunOn leaves a sweep in the middle of a master's keys.
func (s *Store) SweepBegunOn(addr string) { s.cursors[addr] = &cursor{next: 1} }

// PruneNow has the next count drop the counts of coordinators that are gone.
func (s *Store) PruneNow() { s.pulses.pruneAt = time.Time{} }

// PingWithFullPools calls Ping while all connections of producers and of the loops are in use. On a Cluster it looks at
// all masters before.
func (s *Store) PingWithFullPools(ctx context.Context) error {
	var mu sync.Mutex
	var held []*redis.Conn
	defer func() {
		for _, conn := range held {
			_ = conn.Close()
		}
	}()
	for _, client := range []redis.UniversalClient{s.intake, s.loops} {
		err := eachMaster(ctx, client, func(ctx context.Context, master *redis.Client) error {
			for range master.Options().PoolSize {
				conn := master.Conn()
				if err := conn.Ping(ctx).Err(); err != nil {
					return err
				}
				mu.Lock()
				held = append(held, conn)
				mu.Unlock()
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if s.breakers != nil {
		s.breakers.look(ctx)
	}
	return s.Ping(ctx)
}

// AwaitReplicas waits for replicas as after a call that stored messages.
func (s *Store) AwaitReplicas(ctx context.Context) error {
	c := newCall(s.keys.shards[0], 0)
	s.awaitReplicas(ctx, s.intake, []*call{c})
	return c.err
}

// ParkingTime is when a claim returns what it has.
const ParkingTime = parkingTime
