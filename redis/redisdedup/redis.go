// Package redisdedup remembers handled messages in a Redis of the consumer's own, for all instances of the consumer and
// over restarts.
//
// A message is marked after the handler's effect, not together with the effect: a process that dies between the two
// leaves the message Busy, and after the lease the message is handled again.
package redisdedup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/consumer/dedup"
)

// Defaults of Config.
const (
	DefaultPrefix    = "msghandler-inbox"
	DefaultRetention = 24 * time.Hour
	DefaultLease     = time.Minute
)

// Config says where handled messages are remembered. The key of a message is PREFIX:CONSUMER:PRODUCER/ID, the value
// "done", or "busy INSTANCE" during the handling.
type Config struct {
	// Client is a connected client of a single Redis, Sentinel or Cluster; the caller closes the client. Set
	// ContextTimeoutEnabled in its options, or deadlines are ignored, and MaxRetries to -1: with retries, a Begin whose
	// answer was lost finds its own message Busy for a lease.
	Client redis.UniversalClient
	// Consumer is the consumer's name, the same for all its instances: two services that get the same message must both
	// handle the message.
	Consumer string
	// Prefix begins every key. Default: DefaultPrefix.
	Prefix string
	// Retention is how long a handled message is remembered. Retention must be longer than a copy may be on its way,
	// and longer than the last repeat of a Send: after done.retention the coordinator takes a repeat for a new message.
	// Default: DefaultRetention.
	Retention time.Duration
	// Lease is how long a message is Busy after its process died. Lease must be longer than any handler takes: after
	// the lease another copy is handled at the same time. Default: DefaultLease.
	Lease time.Duration
}

// Store is a dedup.Store in Redis.
type Store struct {
	client           redis.UniversalClient
	prefix, mine     string
	retention, lease time.Duration
}

var _ dedup.Store = (*Store)(nil)

// New returns a store. New makes no call to Redis, and so succeeds while Redis is unreachable. New fails when Client
// or Consumer is missing, or a duration is under a second.
func New(config Config) (*Store, error) {
	if config.Client == nil {
		return nil, errors.New("redis dedup: Client is missing; give a go-redis client")
	}
	if config.Consumer == "" {
		return nil, errors.New("redis dedup: Consumer is missing; give the name that all instances share")
	}
	if config.Prefix == "" {
		config.Prefix = DefaultPrefix
	}
	if config.Retention == 0 {
		config.Retention = DefaultRetention
	}
	if config.Lease == 0 {
		config.Lease = DefaultLease
	}
	if config.Retention < time.Second || config.Lease < time.Second {
		return nil, fmt.Errorf("redis dedup: Retention is %v and Lease %v; neither may be under a second",
			config.Retention, config.Lease)
	}
	return &Store{
		client: config.Client, prefix: config.Prefix + ":" + config.Consumer + ":", mine: "busy " + rand.Text(),
		retention: config.Retention, lease: config.Lease,
	}, nil
}

const done = "done"

// Begin implements dedup.Store. A message that is not New takes a second call, because NX and GET exclude each other
// before Redis 7.0.
func (s *Store) Begin(ctx context.Context, key string) (dedup.Status, error) {
	err := s.client.SetArgs(ctx, s.prefix+key, s.mine, redis.SetArgs{Mode: "NX", TTL: s.lease}).Err()
	if err == nil {
		return dedup.New, nil
	}
	if !errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("redis dedup: %w", err)
	}
	switch was, err := s.client.Get(ctx, s.prefix+key).Result(); {
	case err != nil && !errors.Is(err, redis.Nil):
		return 0, fmt.Errorf("redis dedup: %w", err)
	case was == done:
		return dedup.Done, nil
	}
	// Also when the lease ended between the two calls: the next delivery gets New.
	return dedup.Busy, nil
}

// Done implements dedup.Store.
func (s *Store) Done(ctx context.Context, key string) error {
	if err := s.client.Set(ctx, s.prefix+key, done, s.retention).Err(); err != nil {
		return fmt.Errorf("redis dedup: %w", err)
	}
	return nil
}

// release deletes KEYS[1] if its value is ARGV[1], the mark of the holding instance.
var release = redis.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// Release implements dedup.Store.
func (s *Store) Release(ctx context.Context, key string) error {
	if err := release.Run(ctx, s.client, []string{s.prefix + key}, s.mine).Err(); err != nil {
		return fmt.Errorf("redis dedup: %w", err)
	}
	return nil
}
