package redis

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

const (
	// slice is how many messages of the backlog Redis works on at a time: it serves nobody else meanwhile.
	slice = 20
	// recent is how long a call that somebody waits for makes the backlog give way after it.
	recent = time.Second
	// backlogRests and glanceRests are how many times as long as a slice took the pause after it is.
	backlogRests, glanceRests = 3, 1
	// longestRest bounds that pause: a slice that took longer was not kept waiting by what it did itself.
	longestRest = 8 * time.Millisecond
	// patience is how long a call for the backlog gives way at most: Redis, or this process, has too much to do for that
	// then, and small slices would only make it more. It is longer than what a slow producer's answers need that come at
	// the same time, a few hundred messages each.
	patience = time.Second
	// forbearance is how long a backlog gives way that does not end: what an outage has left, not what a slow producer
	// answers at a time. There is a lull when nothing of it comes for so long; what comes then is another backlog.
	forbearance, lull = 10 * time.Second, 250 * time.Millisecond
	// longestTurn is how long a slice that Redis does not answer keeps the next one waiting.
	longestTurn = 20 * time.Millisecond
)

// runner makes calls of a script; see run.
type runner func(ctx context.Context, client redis.UniversalClient, sc *script, calls []*call)

// pacer lets calls that somebody waits for go before the backlog. While there are any, the backlog is done in small
// slices, one after another, with a rest after each that is longer than the slice took: most of Redis' time is left to
// the others, and none of them waits for more than a slice. At other times the backlog has Redis to itself. A call that
// has given way for long enough goes on as it is, and so does a backlog that has.
type pacer struct {
	turn     chan struct{}
	urgentAt atomic.Int64 // in nanoseconds of the epoch, as the others
	// backlogAt is when something of the backlog came last, backlogSince since when there was no lull.
	backlogAt, backlogSince atomic.Int64
}

func newPacer() *pacer { return &pacer{turn: make(chan struct{}, 1)} }

// urgent is the runner of what somebody waits for.
func (p *pacer) urgent(ctx context.Context, client redis.UniversalClient, sc *script, calls []*call) {
	p.urgentAt.Store(time.Now().UnixNano())
	run(ctx, client, sc, calls)
}

// backlog is the runner of what nobody waits for.
func (p *pacer) backlog(ctx context.Context, client redis.UniversalClient, sc *script, calls []*call) {
	ending, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for len(calls) > 0 {
		if !p.givesWay() || ending.Err() != nil {
			run(ctx, client, sc, calls)
			return
		}
		n := sliced(calls, slice)
		p.inTurn(ending, backlogRests, func() { run(ctx, client, sc, calls[:n]) })
		calls = calls[n:]
	}
}

// givesWay says whether the backlog has to leave time to others. It is asked before each slice, and so learns of lulls.
func (p *pacer) givesWay() bool {
	now := time.Now().UnixNano()
	if time.Duration(now-p.backlogAt.Swap(now)) > lull {
		p.backlogSince.Store(now)
	}
	return time.Duration(now-p.urgentAt.Load()) <= recent && time.Duration(now-p.backlogSince.Load()) < forbearance
}

// glances are a runner for what is in no hurry, the lists of operators and the sweeper: its slices are of at most that
// many messages, and take turns and rests whatever else goes on, as other coordinators may have calls that somebody
// waits for.
func (p *pacer) glances(most, rests int) runner {
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

// inTurn does the work when it is its turn, and rests so many times as long; at once, and without a rest, when the
// context has ended.
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
