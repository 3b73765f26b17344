package redisstore

import (
	"cmp"
	"slices"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// A call holds at most so many messages and bytes, so that no script keeps Redis from others for long. A message is
// counted as its weight.
const (
	maxCallItems = 500
	maxCallBytes = 4 << 20
)

// place is where a message of a batch lives.
type place struct {
	shard    int
	producer string
	index    int
}

// plan is a batch as it goes to Redis: for each shard the messages of each producer, in the order of the batch.
type plan struct {
	store *Store
	// looks says that the script compares the shard with the last count that was seen of it.
	looks bool
	// head are the arguments that come before the messages'.
	head []any
	// each appends the arguments of one message, the first of them its id.
	each func(args []any, index int) []any
	// room is how many arguments each appends.
	room int
	// weight is the size of a message's arguments where it matters; may be nil.
	weight func(index int) int
}

func (s *Store) places(n int, name func(int) halfmsg.Name) []place {
	places := make([]place, n)
	for i := range places {
		at := name(i)
		places[i] = place{shard: s.keys.shardOf(at), producer: at.Producer, index: i}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.producer, b.producer), cmp.Compare(a.index, b.index))
	})
	return places
}

// calls makes the calls of sc that bring the plan about.
func (p plan) calls(sc *script, places []place) []*call {
	var calls []*call
	var c *call
	bytes, count := 0, 0 // count is where the number of the producer's messages stands
	for i, at := range places {
		weight := 0
		if p.weight != nil {
			weight = p.weight(at.index)
		}
		another := i == 0 || at.shard != places[i-1].shard || len(c.items) >= maxCallItems || bytes+weight > maxCallBytes
		if another {
			c = newCall(sc, p.store.keys.shards[at.shard], p.length(places[i:]))
			if p.looks {
				c.args = append(c.args, p.store.seen(at.shard)...)
			}
			c.args = append(c.args, p.head...)
			calls, bytes = append(calls, c), 0
		}
		if another || at.producer != places[i-1].producer {
			c.args = append(c.args, at.producer, 0)
			count = len(c.args) - 1
		}
		c.args = p.each(c.args, at.index)
		c.items = append(c.items, at.index)
		c.messages++
		c.args[count] = c.args[count].(int) + 1
		bytes += weight
	}
	return calls
}

// length is about how many arguments a call takes that begins with these messages.
func (p plan) length(places []place) int {
	n := 0
	for n < len(places) && n < maxCallItems && places[n].shard == places[0].shard {
		n++
	}
	return 3 + len(p.head) + n*p.room + 2*min(n, 8)
}

// Replies about one message are verdict + state code.
const (
	verdictOK      = 0
	verdictIllegal = 10
	verdictLost    = 20
	verdictExists  = 30
	verdictMissing = 40
	verdictOver    = 50
)

var verdicts = map[int64]error{
	verdictOK: nil, verdictIllegal: halfmsg.ErrIllegal, verdictLost: halfmsg.ErrLeaseLost, verdictExists: halfmsg.ErrExists,
	verdictMissing: halfmsg.ErrNotFound, verdictOver: halfmsg.ErrOverQuota,
}

// result reads the reply about one message.
func (s *Store) result(c *call, n int, name halfmsg.Name) halfmsg.Result {
	if c.err != nil {
		return halfmsg.Result{Err: c.err}
	}
	switch reply := c.answer(n).(type) {
	case int64:
		state, verdict := reply%10, reply-reply%10
		return halfmsg.Result{State: stateOf[state], Err: verdicts[verdict]}
	case string:
		return halfmsg.Result{Err: corrupt(s.keys.record(name), reply)}
	}
	return halfmsg.Result{Err: corrupt(s.keys.record(name), "no answer about it")}
}
