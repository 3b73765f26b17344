// Package seen remembers what this instance saw of producers and exchanges, and how long messages took.
//
// It is fed from the loops' hooks, so all of it is cheap: a lock that is held for a few assignments each batch, and two
// additions for each message.
package seen

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// most is how many producers and exchanges are remembered. What comes later shares one line.
const most = 200

// Others is the name of that line.
const Others = "(others)"

// Board is what was seen. It is safe for concurrent use; New returns an empty one.
type Board struct {
	Latency Latency
	in, out atomic.Uint64

	mu        sync.Mutex
	producers map[string]*Producer
	exchanges map[string]*Exchange
}

// Producer is how a producer fares.
type Producer struct {
	Name string
	// Paused is how many of its targets are left alone.
	Paused int
	// AnsweredAt is when it last answered, Took how long that took, and Verdict what it said then.
	AnsweredAt time.Time
	Took       time.Duration
	Verdict    halfmsg.Verdict
	// FailedAt is when it could last not be reached, and Failure why.
	FailedAt time.Time
	Failure  string
}

// Exchange is how an exchange fares.
type Exchange struct {
	Name string
	// AckedAt is when the broker last acknowledged a message for it, Acked how many in all.
	AckedAt time.Time
	Acked   int64
	// FailedAt is when the broker last did not, Failure why, and Failed how many in all.
	FailedAt time.Time
	Failure  string
	Failed   int64
}

// New returns a board on which nothing was seen yet.
func New() *Board {
	return &Board{producers: map[string]*Producer{}, exchanges: map[string]*Exchange{}}
}

// line gives what is known of a name, or the line of the others once there are too many.
func line[T any](all map[string]*T, name string, empty func(name string) *T) *T {
	if known := all[name]; known != nil {
		return known
	}
	if len(all) >= most {
		name = Others
	}
	if all[name] == nil {
		all[name] = empty(name)
	}
	return all[name]
}

func (b *Board) producer(name string, see func(p *Producer)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	see(line(b.producers, name, func(name string) *Producer { return &Producer{Name: name} }))
}

func (b *Board) exchange(name string, see func(e *Exchange)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	see(line(b.exchanges, name, func(name string) *Exchange { return &Exchange{Name: name} }))
}

// Taken counts half messages that were stored.
func (b *Board) Taken(messages int) { b.in.Add(uint64(max(0, messages))) }

// Confirmed notes one Confirm call. Of several verdicts the one that needs somebody's eye is kept.
func (b *Board) Confirmed(producer string, verdicts map[string]halfmsg.Verdict, took time.Duration, err error) {
	b.producer(producer, func(p *Producer) {
		if err != nil {
			p.FailedAt, p.Failure = time.Now(), err.Error()
			return
		}
		p.AnsweredAt, p.Took, p.Verdict = time.Now(), took, 0
		for _, verdict := range verdicts {
			if p.Verdict == 0 || verdict == halfmsg.VerdictUnknown {
				p.Verdict = verdict
			}
		}
	})
}

// Paused notes that a target is left alone, or is called again.
func (b *Board) Paused(producer string, paused bool) {
	b.producer(producer, func(p *Producer) {
		if paused {
			p.Paused++
		} else {
			p.Paused = max(0, p.Paused-1)
		}
	})
}

// Published notes what the broker said of messages for an exchange.
func (b *Board) Published(exchange string, outcome halfmsg.Outcome, messages int) {
	b.exchange(exchange, func(e *Exchange) {
		if outcome == halfmsg.Acked {
			e.AckedAt = time.Now()
			e.Acked += int64(messages)
			return
		}
		e.FailedAt = time.Now()
		e.Failed += int64(messages)
	})
	if outcome == halfmsg.Acked {
		b.out.Add(uint64(max(0, messages)))
	}
}

// Failed notes why a message for an exchange was not acknowledged.
func (b *Board) Failed(exchange string, cause error) {
	b.exchange(exchange, func(e *Exchange) {
		e.FailedAt, e.Failure = time.Now(), "no acknowledgement"
		if cause != nil {
			e.Failure = cause.Error()
		}
	})
}

// Acked notes how long a message took. How long its sender asked it to wait says nothing of us.
func (b *Board) Acked(claim *halfmsg.Claim) {
	if claim.Delay == 0 {
		b.Latency.Observe(time.Since(claim.CreatedAt))
	}
}

// Counts gives how many messages came in and went out since the start.
func (b *Board) Counts() (in, out uint64) { return b.in.Load(), b.out.Load() }

// Producers lists what was seen of producers, by name.
func (b *Board) Producers() []Producer {
	return listed(b, b.producers, func(p Producer) string { return p.Name })
}

// Exchanges lists what was seen of exchanges, by name.
func (b *Board) Exchanges() []Exchange {
	return listed(b, b.exchanges, func(e Exchange) string { return e.Name })
}

func listed[T any](b *Board, all map[string]*T, name func(T) string) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := make([]T, 0, len(all))
	for known := range maps.Values(all) {
		lines = append(lines, *known)
	}
	slices.SortFunc(lines, func(a, b T) int { return cmp.Compare(name(a), name(b)) })
	return lines
}
