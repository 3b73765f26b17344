package redis

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// request is what is sent to Redis at once: one call of a script, or several calls where the script joins them. Moves
// that wait together are joined, and on a Cluster the calls for all shards of a master: a request costs Redis as much
// as several messages do, and the batches of a Cluster hold few messages for each shard.
type request struct {
	script *script
	calls  []*call
	// whole says that the request carries the script itself, because the server has forgotten the script.
	whole bool
	// messages and bytes bound the request; see maxCallItems and maxCallBytes.
	messages, bytes int
}

// run makes all calls in one pipeline, leaves in each its reply or its error, and reports the run.
func run(ctx context.Context, client redis.UniversalClient, sc *script, calls []*call) {
	begun := time.Now()
	transact(ctx, client, sc, calls)
	sc.ran(sc.answered(calls), time.Since(begun))
}

// transact makes all calls in one pipeline and leaves in each its reply or its error.
func transact(ctx context.Context, client redis.UniversalClient, sc *script, calls []*call) {
	calls = answerable(ctx, client, calls)
	requests := single(sc, calls)
	if sc.joins {
		requests = join(ctx, client, sc, calls)
	}
	if alone := send(ctx, client, requests); len(alone) > 0 {
		send(ctx, client, single(sc, alone))
	}
}

// single makes a request of each call.
func single(sc *script, calls []*call) []*request {
	requests := make([]*request, len(calls))
	for i, c := range calls {
		requests[i] = &request{script: sc, calls: calls[i : i+1], messages: c.messages, bytes: c.bytes}
	}
	return requests
}

// join groups calls by their master, as many as a request may hold.
func join(ctx context.Context, client redis.UniversalClient, sc *script, calls []*call) (requests []*request) {
	open := map[redis.UniversalClient]*request{}
	for _, c := range calls {
		master, err := masterOf(ctx, client, c)
		r := open[master]
		if err != nil || r == nil || r.messages+c.messages > maxCallItems || r.bytes+c.bytes > maxCallBytes {
			r = &request{script: sc}
			open[master] = r
			requests = append(requests, r)
		}
		r.calls = append(r.calls, c)
		r.messages += c.messages
		r.bytes += c.bytes
	}
	return requests
}

// masterOf is the master of a call's shard: the server itself where there is no Cluster. A Cluster may know no master.
func masterOf(ctx context.Context, client redis.UniversalClient, c *call) (redis.UniversalClient, error) {
	onCluster, is := client.(*cluster)
	if !is {
		return client, nil
	}
	return onCluster.MasterForKey(ctx, c.shard)
}

// send sends requests, again with the whole script where a server has forgotten it. It returns the calls that must be
// made alone: see takeJoined.
func send(ctx context.Context, client redis.UniversalClient, requests []*request) (alone []*call) {
	forgotten, alone := exec(ctx, client, requests)
	if len(forgotten) == 0 {
		return alone
	}
	for _, r := range forgotten {
		r.whole = true
	}
	_, more := exec(ctx, client, forgotten)
	return append(alone, more...)
}

func exec(
	ctx context.Context, client redis.UniversalClient, requests []*request,
) (forgotten []*request, alone []*call) {
	if err := notSent(ctx); err != nil {
		for _, r := range requests {
			fail(r.calls, err)
		}
		return nil, nil
	}
	pipe := client.Pipeline()
	cmds := make([]*redis.Cmd, len(requests))
	for i, r := range requests {
		cmds[i] = redis.NewCmd(ctx, r.args()...)
		_ = pipe.Process(ctx, cmds[i]) // only queues
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, r := range requests {
		replies, err := cmds[i].Slice()
		if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			forgotten = append(forgotten, r)
		}
		alone = append(alone, r.takeReplies(replies, err)...)
	}
	return forgotten, alone
}

// args are the command and its arguments. Before the arguments of joined calls there are their shard, the number of
// their script and the number of their arguments.
func (r *request) args() []any {
	command, text := "evalsha", r.script.sha
	if r.whole {
		command, text = "eval", r.script.source
	}
	room := 4
	for _, c := range r.calls {
		room += 3 + len(c.args)
	}
	args := append(make([]any, 0, room), command, text, 1, r.calls[0].shard)
	for _, c := range r.calls {
		if r.script.joins {
			args = append(args, c.shard, c.part, len(c.args))
		}
		args = append(args, c.args...)
	}
	return args
}

// takeReplies keeps the replies. It returns the calls that must be made alone.
func (r *request) takeReplies(replies []any, err error) (alone []*call) {
	switch {
	case r.script.joins:
		return r.takeJoined(replies, err)
	case err != nil:
		fail(r.calls, translate(err))
	default:
		r.calls[0].reply, r.calls[0].err = replies, nil
	}
	return nil
}

// takeJoined keeps the reply about each call. The calls whose slot has moved or is moving must be made alone: the
// script has done nothing for them, and the others must not wait for the slot.
func (r *request) takeJoined(replies []any, err error) (alone []*call) {
	switch {
	case err != nil && len(r.calls) > 1 && slotMoves(err):
		return r.calls
	case err == nil && len(replies) != len(r.calls):
		err = errors.New("the script has not answered about each shard")
	}
	if err != nil {
		fail(r.calls, translate(err))
		return nil
	}
	for i, c := range r.calls {
		c.reply, c.err = nil, nil
		switch reply := replies[i].(type) {
		case []any:
			c.reply = reply
		case error:
			c.err = translate(reply)
		default:
			alone = append(alone, c)
		}
	}
	return alone
}

// fail leaves the same error in all calls.
func fail(calls []*call, err error) {
	for _, c := range calls {
		c.reply, c.err = nil, err
	}
}

// slotMoves says whether a server has refused a request because of the slot of its key.
func slotMoves(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN")
}
