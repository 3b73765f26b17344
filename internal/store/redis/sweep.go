package redis

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Bounds of one call to Sweep: small enough not to be felt.
const (
	sweepScan  = 500   // keys that each master looks at
	sweepWalks = 8     // steps through large indexes
	sweepStep  = 200   // members in such a step
	sweepSlice = slice // messages in one call of repair.lua
)

// Repairs is the result of a call to Sweep.
type Repairs struct {
	// Checked is how many messages were looked at.
	Checked int
	// Made is how many repairs were made. Each was logged.
	Made int
}

// sweeper is the progress of the sweep through the keys.
type sweeper struct {
	sweeping sync.Mutex
	cursors  map[string]*cursor // by the master's address
	walks    []*walk
	pages    []ownKey
}

// cursor is the progress of SCAN on a master.
type cursor struct {
	next  uint64
	ended bool
}

// walk is the progress through one index.
type walk struct {
	key  ownKey
	next uint64
}

// group is a producer's part of a shard.
type group struct {
	shard, producer string
}

// Sweep checks a bounded slice of the keys and repairs the damage of half-finished writes, manual edits and clock
// jumps: records without index and indexes without record, entries in two indexes, missing or superfluous creation
// times, leases and producers, expiries on unfinished messages, impossible due times. more is false at the end of all
// keys; the next call begins anew. Only keys of this prefix are touched.
func (s *Store) Sweep(ctx context.Context) (repairs Repairs, more bool, err error) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	s.dropUnreachable(ctx)
	found, err := s.scanMasters(ctx)
	if err != nil {
		return repairs, true, translate(err)
	}
	if err := s.walkIndexes(ctx, found); err != nil {
		return repairs, true, translate(err)
	}
	pages := s.takePages(found)
	for at, ids := range found {
		slices.Sort(ids)
		ids = slices.Compact(ids)
		repairs.Checked += len(ids)
		repaired, err := s.repair(ctx, at, pages[at], ids)
		repairs.Made += repaired
		if err != nil {
			return repairs, true, err
		}
	}
	return repairs, s.unfinished(), nil
}

// dropUnreachable drops the walks through indexes whose master is known not to answer: they would stop all others. A
// later sweep finds these indexes again.
func (s *Store) dropUnreachable(ctx context.Context) {
	if c, is := s.loops.(*cluster); is {
		s.walks = slices.DeleteFunc(s.walks, func(w *walk) bool { return c.errorOf(ctx, w.key.shard) != nil })
	}
}

// scanMasters makes one step of SCAN on each master and sorts the keys: messages are returned, indexes walked later.
func (s *Store) scanMasters(ctx context.Context) (map[group][]string, error) {
	var mu sync.Mutex
	found := map[group][]string{}
	seen := map[string]bool{}
	err := eachReachable(ctx, s.loops, func(ctx context.Context, master *redis.Client) error {
		addr := master.Options().Addr
		mu.Lock()
		seen[addr] = true
		at := s.cursors[addr]
		if at == nil {
			at = &cursor{}
			s.cursors[addr] = at
		}
		ended, next := at.ended, at.next
		mu.Unlock()
		if ended {
			return nil
		}
		names, next, err := master.Scan(ctx, next, s.keys.pattern(), sweepScan).Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		at.next, at.ended = next, next == 0
		for _, name := range names {
			s.sort(s.keys.parse(name), found)
		}
		return nil
	})
	if err == nil {
		// A replaced master will never come to the end of its keys; the new master has a cursor of its own.
		maps.DeleteFunc(s.cursors, func(addr string, _ *cursor) bool { return !seen[addr] })
	}
	return found, err
}

func (s *Store) sort(key ownKey, found map[group][]string) {
	at := group{key.shard, key.producer}
	switch key.kind {
	case messageKey:
		found[at] = append(found[at], key.id)
	case dueIndex, createdIndex, idHash, producerSet, chainSet:
		s.walks = append(s.walks, &walk{key: key})
	case pageList:
		s.pages = append(s.pages, key)
	case foreignKey:
	}
}

// walkIndexes makes some steps through the indexes that were found, and adds their members.
func (s *Store) walkIndexes(ctx context.Context, found map[group][]string) error {
	for range sweepWalks {
		if len(s.walks) == 0 {
			return nil
		}
		w := s.walks[0]
		members, next, err := s.step(ctx, w)
		if err != nil {
			return err
		}
		at := group{w.key.shard, w.key.producer}
		for _, member := range members {
			if w.key.kind == producerSet {
				at.producer = member
				found[at] = append(found[at], "")
				continue
			}
			found[at] = append(found[at], member)
		}
		if w.next = next; next == 0 {
			s.walks = s.walks[1:]
		}
	}
	return nil
}

// step reads some members of an index.
func (s *Store) step(ctx context.Context, w *walk) (members []string, next uint64, err error) {
	stride := 2 // members come with a score, or a field's value
	switch w.key.kind {
	case producerSet:
		stride = 1
		members, next, err = s.loops.SScan(ctx, w.key.key, w.next, "", sweepStep).Result()
	case idHash:
		members, next, err = s.loops.HScan(ctx, w.key.key, w.next, "", sweepStep).Result()
	default:
		members, next, err = s.loops.ZScan(ctx, w.key.key, w.next, "", sweepStep).Result()
	}
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		s.logger.Error("key has another type than its name says; the sweeper leaves the key",
			"key", w.key.key, "cause", err)
		return nil, 0, nil
	}
	if stride == 1 {
		return members, next, err
	}
	var names []string
	for i := 0; i < len(members); i += stride {
		names = append(names, members[i])
	}
	return names, next, err
}

// repair checks and repairs messages of one producer, in slices that leave most of Redis' time to other calls, as a
// waiting backlog is checked like everything else. The empty id is the producer itself.
func (s *Store) repair(ctx context.Context, at group, pages, ids []string) (repaired int, err error) {
	var calls []*call
	for chunk := range slices.Chunk(ids, sweepSlice) {
		c := newCall(at.shard, 2+len(pages)+len(chunk))
		c.messages = len(chunk)
		c.args = append(c.args, at.producer, len(pages))
		for _, page := range pages {
			c.args = append(c.args, page)
		}
		pages = nil
		for _, id := range chunk {
			if id != "" {
				c.args = append(c.args, id)
			}
		}
		calls = append(calls, c)
	}
	s.pacer.lowPriority(sweepSlice, backlogRests)(ctx, s.loops, s.scripts.repair, calls)
	for _, c := range calls {
		if c.err != nil {
			return repaired, c.err
		}
		repaired += s.tellRepairs(at.producer, c.reply)
		if err := s.checkChains(ctx, at, c.reply); err != nil {
			return repaired, err
		}
	}
	return repaired, nil
}

// takePages sorts the pages that were found by producer, and has the producer checked.
func (s *Store) takePages(found map[group][]string) map[group][]string {
	pages := map[group][]string{}
	for _, page := range s.pages {
		at := group{page.shard, page.producer}
		pages[at] = append(pages[at], page.id)
		found[at] = append(found[at], "")
	}
	s.pages = nil
	return pages
}

// tellRepairs logs the repairs of repair.lua and returns their number.
func (s *Store) tellRepairs(producer string, replies []any) (repaired int) {
	for _, reply := range replies {
		fields, _ := reply.([]any)
		if len(fields) == 2 {
			repaired++
			s.logger.Warn("repaired: "+fields[1].(string), "message_id", producer+"/"+fields[0].(string))
		}
	}
	return repaired
}

// unfinished says whether the sweep has more to look at; if not, the sweep begins anew.
func (s *Store) unfinished() bool {
	if len(s.walks) > 0 {
		return true
	}
	for _, at := range s.cursors {
		if !at.ended {
			return true
		}
	}
	clear(s.cursors)
	return false
}
