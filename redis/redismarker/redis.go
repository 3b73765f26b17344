// Package redismarker keeps business markers in a Redis of the producer's own, each with an expiry.
//
// The marker is set right after the local commit, not together with the commit: a process that dies between the two
// leaves a committed transaction without a marker. Such a message is answered with UNKNOWN and ends ABANDONED, where
// an operator decides, unless the producer's Resolve finds the business data itself.
//
// Two runs of one id, in two replicas, are not kept apart: this Redis cannot make a transaction of another database
// fail. If one run fails and rolls the message back before the other commits, the other gets
// producer.ErrContradicted, because the rolled-back marker stays until its expiry.
package redismarker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/producer/marker"
)

// Defaults of Config.
const (
	DefaultPrefix    = "msghandler-marker"
	DefaultRetention = 7 * 24 * time.Hour
)

// Config says where the markers are kept. The key of a marker is PREFIX:PRODUCER:ID, the value its verdict in plain
// words. The key PREFIX:PRODUCER:.identity holds the identity of the markers.
type Config struct {
	// Client is a connected client of a single Redis, Sentinel or Cluster; the caller closes the client. Set
	// ContextTimeoutEnabled in its options, or deadlines are ignored.
	Client redis.UniversalClient
	// Producer is the producer's name. The name keeps the markers of several producers in one Redis apart.
	Producer string
	// Prefix begins every key. Default: DefaultPrefix.
	Prefix string
	// Retention is how long a marker is kept that was not deleted, and how long every rolled-back marker is kept.
	// Default: DefaultRetention. Retention must be longer than an outage of the coordinator plus its questions, and
	// longer than any run of a business: a run that outlasts the rolled-back marker of another run never learns that
	// its message is gone.
	Retention time.Duration
}

// Store is a marker.Store in Redis.
type Store struct {
	client    redis.UniversalClient
	prefix    string
	retention time.Duration
	// bound is the identity that the markers must have; empty: any.
	bound string
}

// New returns a store. New makes no call to Redis, and so succeeds while Redis is unreachable. New fails when Client
// or Producer is missing, or Retention is under a second.
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

// Put implements marker.Store. An id whose key holds a foreign value is missing in the answer. SET NX and GET go in
// one pipeline, as Redis before 7.0 does not combine them.
func (s *Store) Put(ctx context.Context, ids []string, v marker.Verdict) (map[string]marker.Verdict, error) {
	if _, err := s.Lookup(ctx, nil, false); err != nil {
		return nil, err // nothing is set in another Redis
	}
	gets := make([]*redis.StringCmd, len(ids))
	sets := make([]*redis.BoolCmd, len(ids))
	err := s.pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, id := range ids {
			sets[i] = pipe.SetNX(ctx, s.prefix+id, v.String(), s.retention)
			gets[i] = pipe.Get(ctx, s.prefix+id)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("set markers: %w", err)
	}
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
			found = v // even if the marker was deleted since: this verdict was the first
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
	if s.bound != "" {
		ids = append([]string{identityKey}, ids...)
	}
	if len(ids) == 0 {
		return nil, ctx.Err()
	}
	gets := make([]*redis.StringCmd, len(ids))
	err := s.pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, id := range ids {
			gets[i] = pipe.Get(ctx, s.prefix+id)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read markers: %w", err)
	}
	if s.bound != "" {
		if identity, err := gets[0].Result(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("read the identity of the markers: %w", err)
		} else if identity != s.bound {
			return nil, marker.ErrOtherStore
		}
		ids, gets = ids[1:], gets[1:]
	}
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

// pipelined sends commands together. The error is one that no command has: when Redis refuses the login of a new
// connection, the driver leaves each command as if Redis had answered it with nothing.
func (s *Store) pipelined(ctx context.Context, queue func(redis.Pipeliner) error) error {
	cmds, err := s.client.Pipelined(ctx, queue)
	if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return nil
	}
	return err
}

// read gives Unknown for an absent key or a foreign value, so that the ids beside the key get their verdict.
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

// Delete implements marker.Store. A rolled-back marker stays for Retention: about 170 bytes of Redis for an id of 10
// bytes. A key with a foreign value is not deleted.
func (s *Store) Delete(ctx context.Context, ids []string) error {
	if err := s.remove(ctx, ids, marker.Committed); err != nil {
		return fmt.Errorf("delete markers: %w", err)
	}
	return nil
}

// Withdraw implements marker.Withdrawer.
func (s *Store) Withdraw(ctx context.Context, ids []string) error {
	if err := s.remove(ctx, ids, marker.RolledBack); err != nil {
		return fmt.Errorf("withdraw markers: %w", err)
	}
	return nil
}

// remove deletes the markers of one verdict, in two round trips. Between them another call may delete a marker and
// put the other verdict: with Delete and with Withdraw the coordinator has a COMMITTED verdict by then, so neither
// marker is needed any more.
func (s *Store) remove(ctx context.Context, ids []string, v marker.Verdict) error {
	standing, err := s.Lookup(ctx, ids, false)
	if err != nil {
		return err
	}
	maps.DeleteFunc(standing, func(_ string, found marker.Verdict) bool { return found != v })
	if len(standing) == 0 {
		return nil
	}
	_, err = s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for id := range standing {
			pipe.Del(ctx, s.prefix+id)
		}
		return nil
	})
	return err
}

// identityKey ends the key of the identity. No id begins with a dot.
const identityKey = ".identity"

// Identity implements marker.Store. The first call on a new Redis makes the identity, which never expires.
func (s *Store) Identity(ctx context.Context) (string, error) {
	var get *redis.StringCmd
	_, err := s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.SetNX(ctx, s.prefix+identityKey, rand.Text()[:12], 0)
		get = pipe.Get(ctx, s.prefix+identityKey)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read the identity of the markers: %w", err)
	}
	return get.Val(), nil
}

// Bound implements marker.Binder.
func (s *Store) Bound(identity string) marker.Store {
	bound := *s
	bound.bound = identity
	return &bound
}

// Capabilities implements marker.Store. Whether markers survive a restart depends on the persistence of the Redis.
func (s *Store) Capabilities() marker.Capabilities {
	return marker.Capabilities{SurvivesRestart: true, Shared: true}
}
