// Package redis keeps business markers in a Redis of the producer's own, each with an expiry.
//
// The marker is set right after the local commit, not together with it: a process that dies between the two leaves a
// committed transaction without a marker. Such a message is answered with UNKNOWN and ends ABANDONED, where an operator
// sees it, unless the producer's Resolve finds the business data itself.
package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/producer/marker"
)

// Defaults of Config.
const (
	DefaultPrefix    = "msghandler-marker"
	DefaultRetention = 7 * 24 * time.Hour
)

// Config says where the markers are kept. The key of one is PREFIX:PRODUCER:ID, its value the verdict in plain words.
type Config struct {
	// Client is a connected client of a single Redis, Sentinel or Cluster; it stays the caller's to close. Set
	// ContextTimeoutEnabled in its options, or deadlines are ignored.
	Client redis.UniversalClient
	// Producer is the producer's name. It keeps the markers of several producers in one Redis apart.
	Producer string
	// Prefix begins every key. Default: DefaultPrefix.
	Prefix string
	// Retention is how long a marker that nobody deleted is kept. Default: DefaultRetention. It must be longer than the
	// coordinator may be away or go on asking.
	Retention time.Duration
}

// Store is a marker.Store in Redis.
type Store struct {
	client    redis.UniversalClient
	prefix    string
	retention time.Duration
}

// New returns a store. It does not touch Redis, so it works while Redis is away. It fails when Client or Producer is
// missing, or Retention is under a second.
func New(config Config) (*Store, error) {
	if config.Client == nil {
		return nil, errors.New("redis markers: Client is missing; give a go-redis client")
	}
	if config.Producer == "" {
		return nil, errors.New("redis markers: Producer is missing; give the name that producer.Config has")
	}
	if config.Prefix == "" {
		config.Prefix = DefaultPrefix
	}
	if config.Retention == 0 {
		config.Retention = DefaultRetention
	}
	if config.Retention < time.Second {
		return nil, fmt.Errorf("redis markers: Retention of %v is under a second", config.Retention)
	}
	return &Store{
		client:    config.Client,
		prefix:    config.Prefix + ":" + config.Producer + ":",
		retention: config.Retention,
	}, nil
}

// Put implements marker.Store. An id whose key holds something that is no marker is left out of the answer. SET NX and
// GET go in one pipeline, as Redis before 7.0 does not combine them.
func (s *Store) Put(ctx context.Context, ids []string, v marker.Verdict) (map[string]marker.Verdict, error) {
	gets := make([]*redis.StringCmd, len(ids))
	sets := make([]*redis.BoolCmd, len(ids))
	_, _ = s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, id := range ids {
			sets[i] = pipe.SetNX(ctx, s.prefix+id, v.String(), s.retention)
			gets[i] = pipe.Get(ctx, s.prefix+id)
		}
		return nil
	})
	standing := make(map[string]marker.Verdict, len(ids))
	for i, id := range ids {
		if err := sets[i].Err(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("set marker: %w", err)
		}
		found, err := read(gets[i])
		if err != nil {
			return nil, err
		}
		if sets[i].Val() {
			found = v // even when somebody has deleted it since: the one that was set stood
		}
		if found.Definite() {
			standing[id] = found
		}
	}
	return standing, nil
}

// Lookup implements marker.Store. A final question changes nothing: this Redis cannot tell whether a transaction of the
// producer's database will commit.
func (s *Store) Lookup(ctx context.Context, ids []string, _ bool) (map[string]marker.Verdict, error) {
	gets := make([]*redis.StringCmd, len(ids))
	_, _ = s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, id := range ids {
			gets[i] = pipe.Get(ctx, s.prefix+id)
		}
		return nil
	})
	verdicts := make(map[string]marker.Verdict, len(ids))
	for i, id := range ids {
		v, err := read(gets[i])
		if err != nil {
			return nil, err
		}
		if v.Definite() {
			verdicts[id] = v
		}
	}
	return verdicts, nil
}

// read gives Unknown for a key that is absent or holds something else, which is no reason to fail the ids beside it.
func read(get *redis.StringCmd) (marker.Verdict, error) {
	value, err := get.Result()
	switch {
	case errors.Is(err, redis.Nil), err != nil && redis.HasErrorPrefix(err, "WRONGTYPE"):
		return marker.Unknown, nil
	case err != nil:
		return marker.Unknown, fmt.Errorf("read marker: %w", err)
	case value == marker.Committed.String():
		return marker.Committed, nil
	case value == marker.RolledBack.String():
		return marker.RolledBack, nil
	}
	return marker.Unknown, nil
}

// Delete implements marker.Store.
func (s *Store) Delete(ctx context.Context, ids []string) error {
	_, err := s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, id := range ids {
			pipe.Del(ctx, s.prefix+id)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete markers: %w", err)
	}
	return nil
}

// Capabilities implements marker.Store. How well markers survive is up to how that Redis persists.
func (s *Store) Capabilities() marker.Capabilities {
	return marker.Capabilities{SurvivesRestart: true, Shared: true}
}
