package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync/atomic"

	"github.com/msghandler/msghandler/producer"
)

// ShardOf returns the shard of a key among a number of shards: the FNV-1a hash of 32 bits, modulo the number. A
// program that writes rows in another language computes the same.
func ShardOf(key string, shards int) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(key))
	return int(hash.Sum32() % uint32(max(shards, 1))) //nolint:gosec // shards are few
}

// scope is the part of a table that a store writes and claims.
type scope struct {
	// only is the shard of every new message; -1: the shard that the message's key gives.
	only int
	// shards are the shards that a claim reads, in any case.
	shards []int
	// strays is the first shard number beyond the configuration. The store that has the first shard claims those as
	// well: after the number of shards was lowered, their messages would be forgotten. 0: another store claims them.
	strays int
	// condition restricts other statements to the scope; empty for the whole table.
	condition string
}

// wholeTable is the scope of a new store.
func wholeTable(config Config) scope {
	sc := scope{only: -1, strays: max(config.Shards, config.ShardID+1)}
	if config.Shards == 1 {
		sc.only = config.ShardID
	}
	for shard := range sc.strays {
		sc.shards = append(sc.shards, shard)
	}
	return sc
}

// Shard returns a store for one of the Shards of a table: a relay of the store claims, counts and purges this shard
// alone, and Enqueue writes into this shard. Markers are shared by all shards. The store of shard 0 also claims the
// messages of shards beyond Config.Shards, which exist after the number was lowered. Shard panics for a number that is
// not a shard.
func (s *Store) Shard(shard int) *Store {
	if shard < 0 || shard >= s.config.Shards {
		panic(fmt.Sprintf("sql markers: shard %d of %d", shard, s.config.Shards))
	}
	view := *s
	view.turn, view.stray = &atomic.Uint32{}, &atomic.Int64{}
	view.scope = scope{only: shard, shards: []int{shard}, condition: fmt.Sprintf(" AND shard_id = %d", shard)}
	if shard == 0 {
		view.scope.strays = s.config.Shards
		view.scope.condition = fmt.Sprintf(" AND (shard_id = 0 OR shard_id >= %d)", s.config.Shards)
	}
	return &view
}

// Shards returns the number of shards of the table.
func (s *Store) Shards() int { return s.config.Shards }

// shardOf returns the shard of a new message. All messages of an aggregate are in one shard.
func (s *Store) shardOf(m producer.Message, e Event) int {
	if s.scope.only >= 0 {
		return s.scope.only
	}
	return ShardOf(either(e.AggregateID, m.ID), s.config.Shards)
}

// claimable returns the shards of a claim, and the order of their messages. Each claim begins with another shard, so
// that a shard with a long backlog does not keep the others waiting.
func (s *Store) claimable(ctx context.Context) (shards []int, by order, err error) {
	shards = slices.Clone(s.scope.shards)
	if s.scope.strays > 0 {
		strays, err := s.strayShards(ctx)
		if err != nil {
			return nil, "", err
		}
		shards = append(shards, strays...)
	}
	turn := int(s.turn.Add(1))
	first := turn % len(shards)
	by = byID
	if turn/len(shards)%longestDueTurn == 0 {
		by = byLongestDue
	}
	return append(shards[first:], shards[:first]...), by, nil
}

// maxStrays is how many shards beyond the configuration one claim reads. The next claim goes on behind them, because
// their messages may be due much later.
const maxStrays = 16

// strayShards finds shards beyond the configuration that have unsent messages.
func (s *Store) strayShards(ctx context.Context) (shards []int, err error) {
	begin := max(s.scope.strays, int(s.stray.Load()))
	shards, err = s.strayShardsFrom(ctx, begin)
	if err == nil && len(shards) == 0 && begin > s.scope.strays {
		shards, err = s.strayShardsFrom(ctx, s.scope.strays)
	}
	next := 0
	if len(shards) == maxStrays {
		next = shards[maxStrays-1] + 1
	}
	s.stray.Store(int64(next))
	return shards, err
}

// strayShardsFrom finds up to maxStrays shards from a number on. Each step reads one entry of the claim's index,
// however many messages the shard has.
func (s *Store) strayShardsFrom(ctx context.Context, next int) (shards []int, err error) {
	for len(shards) < maxStrays {
		var shard int
		err := s.db.QueryRowContext(ctx, s.table.Query(`SELECT shard_id FROM {table}
			WHERE shard_id >= ? AND producer = ? AND state IN ({waiting}, {handed}) AND due_at IS NOT NULL
			ORDER BY shard_id LIMIT 1`), next, s.config.Producer).Scan(&shard)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return shards, nil
		case err != nil:
			return nil, err
		}
		shards, next = append(shards, shard), shard+1
	}
	return shards, nil
}
