package redis

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// All messages of a chain are in the shard of PRODUCER/KEY. Where that is not the shard of PRODUCER/ID, a pointer
// stands in the place of the record in the latter, from before the record is written until its receipt has expired:
//
//	keyed WRITTEN_MS KEY

// pointer is the first word of a pointer.
const pointer = "keyed"

// newPointer is for how long the sweeper leaves a pointer without a record: the record may be on its way.
const newPointer = 2 * time.Minute

// shardFor is the shard of a message with an ordering key, or with none.
func (k keys) shardFor(name halfmsg.Name, key string) int {
	if key == "" {
		return k.shardOf(name)
	}
	return k.shardOf(halfmsg.Name{Producer: name.Producer, ID: key})
}

// pointerKey reads the ordering key of a pointer; "" for any other text.
func pointerKey(text string) (key string, written time.Time) {
	words := strings.Fields(text)
	if len(words) != 3 || words[0] != pointer {
		return "", time.Time{}
	}
	return words[2], timeAt(number(words[1]))
}

// follow calls again for the messages that were not found where their names lead, and to which there is a pointer, at
// the shards of their chains.
func (s *Store) follow(
	ctx context.Context, n int, name func(int) halfmsg.Name, missing func(int) bool, again func(places []place),
) {
	var lost []int
	for i := range n {
		if len(s.keys.shards) > 1 && missing(i) {
			lost = append(lost, i)
		}
	}
	if len(lost) == 0 {
		return
	}
	pipe := s.intake.Pipeline()
	texts := make([]*redis.StringCmd, len(lost))
	for k, i := range lost {
		texts[k] = pipe.GetRange(ctx, s.keys.record(name(i)), 0, maxPointer)
	}
	_, _ = pipe.Exec(ctx) // a message whose pointer cannot be read stays not found, and its caller calls again
	var places []place
	for k, i := range lost {
		if key, _ := pointerKey(texts[k].Val()); key != "" {
			places = append(places, place{shard: s.keys.shardFor(name(i), key), producer: name(i).Producer, index: i})
		}
	}
	if len(places) > 0 {
		slices.SortFunc(places, comparePlaces)
		again(places)
	}
}

// maxPointer is more than a pointer has.
const maxPointer = 199

// writePointers writes the pointers to messages of chains in other shards, and returns the places of the messages that
// may be stored then. The others get their results: their names are taken.
func (s *Store) writePointers(
	ctx context.Context, places []place, name func(int) halfmsg.Name, key func(int) string, results []halfmsg.Result,
) []place {
	if len(s.keys.shards) == 1 {
		return places
	}
	elsewhere, here := split(places, func(at place) bool {
		return key(at.index) != "" && s.keys.shardOf(name(at.index)) != at.shard
	})
	if len(elsewhere) == 0 {
		return places
	}
	chain := make(map[int]int, len(elsewhere)) // shards of chains by index
	for i := range elsewhere {
		at := &elsewhere[i]
		chain[at.index], at.shard = at.shard, s.keys.shardOf(name(at.index))
	}
	slices.SortFunc(elsewhere, comparePlaces)
	p := plan{
		store: s, room: 2, head: always(),
		each: func(args []any, i int) []any { return append(args, name(i).ID, key(i)) },
	}
	calls := p.calls(elsewhere)
	s.runReplicated(ctx, s.scripts.point, calls)
	for _, c := range calls {
		for n, i := range c.items {
			r := s.result(c, n, name(i))
			if isNotFound(r.Err) {
				r.Err = halfmsg.ErrExists // under another ordering key
			}
			if results[i] = r; r.Err == nil {
				here = append(here, place{shard: chain[i], producer: name(i).Producer, index: i})
			}
		}
	}
	slices.SortFunc(here, comparePlaces)
	return here
}

// WakeForSuccessors has wake called when a move has made successors of its messages due: the next scheduled pass of the
// send loop would hold up each message of a chain. wake must not block.
func (s *Store) WakeForSuccessors(wake func()) { s.wakeSender.Store(&wake) }

// noteSuccessors reads how many successors a call of move.lua has made due.
func (s *Store) noteSuccessors(c *call) {
	wake := s.wakeSender.Load()
	if successors, _ := c.answer(len(c.items)).(int64); successors > 0 && wake != nil {
		(*wake)()
	}
}

// keyOf is the ordering key of a claimed message, also where its record cannot be read: then the pointer has the key.
// It is only needed to find the message.
func (s *Store) keyOf(ctx context.Context, claim halfmsg.Claim) string {
	if claim.OrderingKey != "" || len(s.keys.shards) == 1 {
		return claim.OrderingKey
	}
	key, _ := pointerKey(s.intake.GetRange(ctx, s.keys.record(claim.Name), 0, maxPointer).Val())
	return key
}

// tellStates fills in the states of messages whose names are taken by messages in other shards.
func (s *Store) tellStates(ctx context.Context, places []place, name func(int) halfmsg.Name, results []halfmsg.Result) {
	if len(s.keys.shards) == 1 {
		return
	}
	var names []halfmsg.Name
	var of []int
	for _, at := range places {
		if r := results[at.index]; r.State == halfmsg.None && isExists(r.Err) {
			names, of = append(names, name(at.index)), append(of, at.index)
		}
	}
	if len(names) == 0 {
		return
	}
	records, _ := s.getAll(ctx, names, false, run)
	for k, i := range of {
		results[i].State = records[k].State
	}
}

// checkChains does the part of the sweep that concerns two shards: it removes the old pointers whose messages are gone,
// and writes the missing pointers to messages of chains. found are the replies of repair.lua about a producer.
func (s *Store) checkChains(ctx context.Context, at group, found []any) error {
	if len(s.keys.shards) == 1 {
		return nil
	}
	var names []halfmsg.Name
	var keys []string
	var places []place
	for _, reply := range found {
		fields, _ := reply.([]any)
		if len(fields) != 3 {
			continue
		}
		name := halfmsg.Name{Producer: at.producer, ID: text(fields[0])}
		if fields[2] == "pointer" {
			if err := s.dropPointer(ctx, at, name, text(fields[1])); err != nil {
				return err
			}
			continue
		}
		names, keys = append(names, name), append(keys, text(fields[1]))
		places = append(places, place{
			shard: s.keys.shardFor(name, text(fields[1])), producer: at.producer, index: len(names) - 1,
		})
	}
	results := make([]halfmsg.Result, len(names))
	name, key := func(i int) halfmsg.Name { return names[i] }, func(i int) string { return keys[i] }
	s.writePointers(ctx, places, name, key, results)
	return nil
}

func text(field any) string {
	s, _ := field.(string)
	return s
}

// dropPointer removes an old pointer to a message that is gone, unless the pointer was written again meanwhile.
func (s *Store) dropPointer(ctx context.Context, at group, name halfmsg.Name, found string) error {
	key, written := pointerKey(found)
	now, err := s.loops.Time(ctx).Result()
	if err != nil || key == "" || now.Sub(written) < newPointer {
		return translate(err)
	}
	record := s.keys.shards[s.keys.shardFor(name, key)] + name.Producer + ":" + recordPrefix + name.ID
	switch kept, err := s.loops.Exists(ctx, record).Result(); {
	case err != nil:
		return translate(err)
	case kept > 0:
		return nil
	}
	err = s.loops.Eval(ctx, deletePointer, []string{at.shard + name.Producer + ":" + recordPrefix + name.ID}, found).Err()
	return translate(err)
}

// deletePointer removes a pointer that was not written again.
const deletePointer = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"
