package redis

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/pacing"
)

const (
	// slice is how many messages of the backlog Redis works on at a time. Redis serves no other call meanwhile.
	slice = 20
	// claimSlice and promptSlice are the same for claims, and for messages whose producer answers without delay.
	claimSlice, promptSlice = 40, 80
	// backlogRests and lowPriorityRests say how long the pause after a slice is, as a multiple of the slice's time.
	// Claims and prompt messages have none.
	backlogRests, lowPriorityRests, noRests = 3, 1, 0
	// longestRest bounds the pause: a slice that took longer was delayed by other work.
	longestRest = 8 * time.Millisecond
	// maxYield is how long a backlog without an end yields: an outage has left such a backlog, while a slow producer
	// answers for a few hundred messages at a time.
	maxYield = 10 * time.Second
	// maxCallYield is how long one call for the backlog yields. A call that takes longer meets a Redis, or a process,
	// with too much to do, and small slices would only add to the work. The answers of a slow producer that come at the
	// same time, a few hundred messages each, need less.
	maxCallYield = time.Second
	// longestTurn is how long a slice without an answer of Redis delays the next one.
	longestTurn = 20 * time.Millisecond
)

// runner makes calls of a script; see run.
type runner func(ctx context.Context, client redis.UniversalClient, sc *script, calls []*call)

// pacer lets calls with a waiting caller go before the backlog. While there are such calls, the backlog is done in
// small slices, one after another, so that none of them waits for more than one slice. At other times the backlog has
// Redis to itself. A call that has yielded for maxCallYield goes on at once, and so does a backlog after maxYield.
//
// The answers of a slow producer, or the failures of one that is away, come for hundreds of messages at once. Without a
// rest after each slice, longer than the slice took, such a burst would take all of Redis' time, and of the CPUs'. The
// backlog of a prompt producer, as an outage leaves it, comes steadily: it needs no rest.
type pacer struct {
	turn  chan struct{}
	clock *pacing.Clock
}

func newPacer() *pacer { return &pacer{turn: make(chan struct{}, 1), clock: pacing.NewClock(maxYield)} }

// urgent is the runner of calls with a waiting caller.
func (p *pacer) urgent(ctx context.Context, client redis.UniversalClient, sc *script, calls []*call) {
	p.clock.Fresh()
	run(ctx, client, sc, calls)
}

// backlog returns a runner for calls without a waiting caller. While it yields, its slices have at most that many
// messages, with so long a rest after each.
func (p *pacer) backlog(most, rests int) runner {
	return func(ctx context.Context, client redis.UniversalClient, sc *script, calls []*call) {
		ending, cancel := context.WithTimeout(ctx, maxCallYield)
		defer cancel()
		for len(calls) > 0 {
			if !p.yields() || ending.Err() != nil {
				run(ctx, client, sc, calls)
				return
			}
			n := sliced(calls, most)
			p.inTurn(ending, rests, func() { run(ctx, client, sc, calls[:n]) })
			calls = calls[n:]
		}
	}
}

// yields says whether the next slice of the backlog leaves time to others. Each slice counts as backlog that comes.
func (p *pacer) yields() bool {
	p.clock.Backlog()
	return p.clock.Yields()
}

// lowPriority returns a runner for calls without hurry: the lists of operators and the sweeper. Its slices have at most
// that many messages. They always take turns and rests, since other coordinators may have calls with a waiting caller.
func (p *pacer) lowPriority(most, rests int) runner {
	return func(ctx context.Context, client redis.UniversalClient, sc *script, calls []*call) {
		for len(calls) > 0 {
			n := sliced(calls, most)
			p.inTurn(ctx, rests, func() { run(ctx, client, sc, calls[:n]) })
			calls = calls[n:]
		}
	}
}

// sliced is how many calls make a slice of at most that many messages.
func sliced(calls []*call, most int) int {
	messages := 0
	for n, c := range calls {
		if messages += c.messages; n > 0 && messages > most {
			return n
		}
	}
	return len(calls)
}

// inTurn does the work alone, and then rests for a multiple of the work's time. When the context has ended, the work is
// done at once and without a rest.
func (p *pacer) inTurn(ctx context.Context, rests int, work func()) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		work()
		return
	}
	leave := sync.OnceFunc(func() { <-p.turn })
	defer leave()
	late := time.AfterFunc(longestTurn, leave)
	defer late.Stop()
	begun := time.Now()
	work()
	_ = backoff.Sleep(ctx, min(time.Duration(rests)*time.Since(begun), longestRest))
}
