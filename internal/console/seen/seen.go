// Package seen remembers what this instance saw of producers and exchanges, and how long messages took. The pages and the
// metrics both read it, so that they cannot differ.
//
// It is fed from the loops' hooks, so all of it is cheap: a lock that is held for a few assignments each batch, and an
// addition for each message.
package seen

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Most is how many producers, and how many exchanges, have a line of their own. What comes later shares one.
const Most = 100

// Other is the name of that line.
const Other = "other"

// Board is what was seen. It is safe for concurrent use; New returns an empty one.
type Board struct {
	Latency Latency

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
	// Answered and Unreached count the Confirm calls, Unreachable the messages of the latter.
	Answered, Unreached, Unreachable int64
	// Verdicts counts the messages that it answered about, by verdict.
	Verdicts [halfmsg.VerdictUnavailable + 1]int64
}

// Exchange is how an exchange fares.
type Exchange struct {
	Name string
	// AckedAt is when the broker last acknowledged a message for it.
	AckedAt time.Time
	// FailedAt is when the broker last did not, and Failure why.
	FailedAt time.Time
	Failure  string
	// Outcomes counts the publishings, by outcome.
	Outcomes [halfmsg.Unsent + 1]int64
}

// Acked is how many publishings the broker acknowledged.
func (e Exchange) Acked() int64 { return e.Outcomes[halfmsg.Acked] }

// Failed is how many it did not.
func (e Exchange) Failed() int64 {
	return e.Outcomes[halfmsg.Refused] + e.Outcomes[halfmsg.Unsure] + e.Outcomes[halfmsg.Unsent]
}

// New returns a board on which nothing was seen yet.
func New() *Board {
	return &Board{producers: map[string]*Producer{}, exchanges: map[string]*Exchange{}}
}

// line gives what is known of a name, or the shared line once there are too many.
func line[T any](all map[string]*T, name string, empty func(name string) *T) *T {
	if known := all[name]; known != nil {
		return known
	}
	if len(all) >= Most {
		name = Other
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

// Confirmed notes one Confirm call. Of several verdicts the one that needs somebody's eye is kept as the last.
func (b *Board) Confirmed(
	producer string, messages int, verdicts map[string]halfmsg.Verdict, took time.Duration, err error,
) {
	b.producer(producer, func(p *Producer) {
		if err != nil {
			p.FailedAt, p.Failure = time.Now(), err.Error()
			p.Unreached++
			p.Unreachable += int64(messages)
			return
		}
		p.Answered++
		p.AnsweredAt, p.Took, p.Verdict = time.Now(), took, 0
		for _, verdict := range verdicts {
			p.Verdicts[verdict]++
			if p.Verdict == 0 || verdict == halfmsg.VerdictUnknown || verdict == halfmsg.VerdictUnavailable {
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
		e.Outcomes[outcome] += int64(messages)
		if outcome == halfmsg.Acked {
			e.AckedAt = time.Now()
		} else {
			e.FailedAt = time.Now()
		}
	})
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

// Acked is how many messages the broker acknowledged since the start.
func (b *Board) Acked() (n int64) {
	for _, e := range b.Exchanges() {
		n += e.Acked()
	}
	return n
}

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
