package redis

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// A call holds at most so many messages and bytes, so that no script keeps Redis from others for long; and no more than
// a script can unpack at once. A message counts with its weight.
const (
	maxCallItems = 200
	maxCallBytes = 4 << 20
)

// portions is the most calls that a large batch of the backlog is cut into: other calls have their turn between them.
const portions = 16

// portion is the number of backlog messages in one call.
func portion(messages int) int {
	return min(max(slice, (messages+portions-1)/portions), maxCallItems)
}

// place is the shard and producer of a message of a batch.
type place struct {
	shard    int
	producer string
	index    int
}

// plan is a batch in the order for Redis: for each shard the messages of each producer, in the order of the batch.
type plan struct {
	store *Store
	// looks says that the script compares the shard with the last count seen there.
	looks bool
	// head gives the arguments before the messages of one call.
	head func(places []place) []any
	// each appends the arguments of one message, first the id.
	each func(args []any, index int) []any
	// room is how many arguments each appends.
	room int
	// most is how many messages one call holds; 0 is maxCallItems.
	most int
	// apart says that two messages cannot share a call, because their heads differ; may be nil.
	apart func(a, b place) bool
	// weight is the size of a message's arguments where it matters; may be nil.
	weight func(index int) int
}

// places are the places of messages without an ordering key, or whose key is not known.
func (s *Store) places(n int, name func(int) halfmsg.Name) []place {
	return s.keyedPlaces(n, name, func(int) string { return "" })
}

// keyedPlaces are the places of messages by their ordering keys, where they have one.
func (s *Store) keyedPlaces(n int, name func(int) halfmsg.Name, key func(int) string) []place {
	places := make([]place, n)
	for i := range places {
		at := name(i)
		places[i] = place{shard: s.keys.shardFor(at, key(i)), producer: at.Producer, index: i}
	}
	slices.SortFunc(places, comparePlaces)
	return places
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.producer, b.producer), cmp.Compare(a.index, b.index))
}

// calls makes the calls for the plan.
func (p plan) calls(places []place) []*call {
	var calls []*call
	for len(places) > 0 {
		n := p.fit(places)
		calls = append(calls, p.call(places[:n]))
		places = places[n:]
	}
	return calls
}

// fit is how many of the places go into the next call: at least 1.
func (p plan) fit(places []place) int {
	most := min(len(places), cmp.Or(p.most, maxCallItems))
	bytes := 0
	for n, at := range places[:most] {
		if p.weight != nil {
			bytes += p.weight(at.index)
		}
		if n > 0 && (at.shard != places[0].shard || bytes > maxCallBytes || p.apart != nil && p.apart(places[0], at)) {
			return n
		}
	}
	return most
}

// call is the call for messages of one shard.
func (p plan) call(places []place) *call {
	shard := places[0].shard
	head := p.head(places)
	c := newCall(p.store.keys.shards[shard], 3+len(head)+len(places)*p.room+2*min(len(places), 8))
	if p.looks {
		c.args = append(c.args, p.store.seen(shard)...)
	}
	c.args = append(c.args, head...)
	count := 0 // index of the producer's number of messages
	for i, at := range places {
		if i == 0 || at.producer != places[i-1].producer {
			c.args = append(c.args, at.producer, 0)
			count = len(c.args) - 1
		}
		c.args = p.each(c.args, at.index)
		c.args[count] = c.args[count].(int) + 1
		c.items = append(c.items, at.index)
		if p.weight != nil {
			c.bytes += p.weight(at.index)
		}
	}
	c.messages = len(places)
	return c
}

// always is a head with the same arguments for all calls.
func always(args ...any) func([]place) []any {
	return func([]place) []any { return args }
}

// Replies about one message are one of these + state code.
const (
	replyOK      = 0
	replyIllegal = 10
	replyLost    = 20
	replyExists  = 30
	replyMissing = 40
	replyOver    = 50
	replyStored  = 60 // new
	replyHeld    = 70 // the caller holds the lease now
	// replyRepaired is replyStored after a repair: the leftovers of a lost record were removed first.
	replyRepaired = 80
	// replyWaits is replyOK for a committed message that stands behind another one of its chain: it has no owner now.
	replyWaits   = 90
	replyKeyHeld = 100
)

var replyErrors = map[int64]error{
	replyOK: nil, replyIllegal: halfmsg.ErrIllegal, replyLost: halfmsg.ErrLeaseLost,
	replyExists: halfmsg.ErrExists, replyMissing: halfmsg.ErrNotFound,
	replyOver: halfmsg.ErrOverQuota, replyStored: nil, replyHeld: nil,
	replyRepaired: nil, replyWaits: nil, replyKeyHeld: halfmsg.ErrKeyHeld,
}

// result reads the reply about one message.
func (s *Store) result(c *call, n int, name halfmsg.Name) halfmsg.Result {
	if c.err != nil {
		return halfmsg.Result{Err: c.err}
	}
	switch reply := c.answer(n).(type) {
	case int64:
		state, kind := reply%10, reply-reply%10
		err := replyErrors[kind]
		if kind == replyOver {
			err = fmt.Errorf("%w: %s", err, name.Producer) // the remedy depends on the producer
		}
		return halfmsg.Result{State: stateOf[state], Waits: kind == replyWaits, Err: err}
	case string:
		return halfmsg.Result{Err: corrupt(s.keys.record(name), reply)}
	}
	return halfmsg.Result{Err: corrupt(s.keys.record(name), "no answer about it")}
}
