// Package bare does only the bare work of a coordinator, as the reference of comparisons: a half message is stored, its
// producer is asked, the message becomes sendable, its marker is deleted, the message is published and removed. There
// are no checks, digests, leases, retries, backoffs or traces, and a crash loses messages.
//
// The design is for speed: all work goes in batches that gather while earlier batches are in flight, bodies stay in
// memory, a batch moves in the indexes at once, and nothing waits for a timer.
package bare

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// A half message costs the least possible in Redis: a value and a place in an index, moved and removed.
var (
	halfScript = redis.NewScript(`
		redis.call('MSET', unpack(ARGV))
		local places = {}
		for i = 1, #ARGV, 2 do
			places[i], places[i + 1] = i, ARGV[i]
		end
		redis.call('ZADD', KEYS[1], unpack(places))`)
	sendableScript = redis.NewScript(`
		local places = {}
		for i = 1, #ARGV do
			places[2 * i - 1], places[2 * i] = i, ARGV[i]
		end
		redis.call('ZADD', KEYS[2], unpack(places))
		redis.call('ZREM', KEYS[1], unpack(ARGV))`)
	doneScript = redis.NewScript(`
		redis.call('ZREM', KEYS[2], unpack(ARGV))
		redis.call('DEL', unpack(ARGV))`)
)

// store keeps messages in Redis, under one prefix.
type store struct {
	client *redis.Client
	prefix string
	keys   []string
}

func openStore(url, prefix string) (*store, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("the bare chain takes one Redis, redis://HOST:PORT/DB") // the URL may hold a password
	}
	options.Protocol, options.DisableIdentity = 2, true
	return &store{
		client: redis.NewClient(options), prefix: prefix + ":", keys: []string{prefix + ":pending", prefix + ":sendable"},
	}, nil
}

func (s *store) half(ctx context.Context, messages []*message) error {
	args := make([]any, 0, 2*len(messages))
	for _, m := range messages {
		m.key = s.prefix + m.id
		args = append(args, m.key, m.body)
	}
	return s.run(ctx, halfScript, args)
}

func (s *store) sendable(ctx context.Context, messages []*message) error {
	return s.run(ctx, sendableScript, keysOf(messages))
}

func (s *store) done(ctx context.Context, messages []*message) error {
	return s.run(ctx, doneScript, keysOf(messages))
}

func keysOf(messages []*message) []any {
	keys := make([]any, len(messages))
	for i, m := range messages {
		keys[i] = m.key
	}
	return keys
}

func (s *store) run(ctx context.Context, script *redis.Script, args []any) error {
	if err := script.Run(ctx, s.client, s.keys, args...).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

// close removes the remaining messages, found by their indexes.
func (s *store) close(ctx context.Context) error {
	defer func() { _ = s.client.Close() }() // only the removal matters
	for _, index := range s.keys {
		ids, err := s.client.ZRange(ctx, index, 0, -1).Result()
		if err != nil {
			return fmt.Errorf("clean up %s: %w", index, err)
		}
		for len(ids) > 0 {
			n := min(len(ids), maxBatch)
			if err := s.client.Del(ctx, ids[:n]...).Err(); err != nil {
				return fmt.Errorf("clean up %s: %w", index, err)
			}
			ids = ids[n:]
		}
		if err := s.client.Del(ctx, index).Err(); err != nil {
			return fmt.Errorf("clean up %s: %w", index, err)
		}
	}
	return nil
}
