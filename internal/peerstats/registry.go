// Package peerstats counts a coordinator's results with producers and exchanges, and the latencies of messages. Metrics
// read the counts of this coordinator. Coordinators share reports of the same counts, and pages show the sums.
//
// The hooks of the loops feed the counts, so the cost is small: a short lock for each batch, and an addition for each
// message.
package peerstats

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// MaxNamed bounds the producers, and the exchanges, with a separate entry. Later names share an entry.
const MaxNamed = 100

// Other is the name of the shared entry.
const Other = "other"

// Registry holds the counts. A Registry is safe for concurrent use; New returns an empty Registry.
type Registry struct {
	Latency Latency

	mu        sync.Mutex
	producers map[string]*Producer
	exchanges map[string]*Exchange // by broker and name
}

// Producer is the state of a producer.
type Producer struct {
	Name string `json:"name"`
	// Paused is the number of its targets with an open circuit.
	Paused int `json:"paused,omitzero"`
	// AnsweredAt is the time of the last answer, Took its duration and Verdict its verdict.
	AnsweredAt time.Time       `json:"answered_at,omitzero"`
	Took       time.Duration   `json:"took_ns,omitzero"`
	Verdict    halfmsg.Verdict `json:"verdict,omitzero"`
	// FailedAt is the time of the last failed call, and Failure its cause.
	FailedAt time.Time `json:"failed_at,omitzero"`
	Failure  string    `json:"failure,omitzero"`
	// ClosedAt is when the last open circuit closed: the target has answered, or no message waits for the target.
	ClosedAt time.Time `json:"closed_at,omitzero"`
	// Answered and Unreached count the Confirm calls, Unreachable the messages of the latter.
	Answered    int64 `json:"answered,omitzero"`
	Unreached   int64 `json:"unreached,omitzero"`
	Unreachable int64 `json:"unreachable,omitzero"`
	// Verdicts counts the answered messages, by verdict.
	Verdicts [halfmsg.VerdictUnavailable + 1]int64 `json:"verdicts,omitzero"`
	// Stored and Acked count its half messages and its acknowledged messages.
	Stored int64 `json:"stored,omitzero"`
	Acked  int64 `json:"acked,omitzero"`
	// Rates are half messages, acknowledged messages and refused calls a second, in a Report and in Sums only.
	Rates Rates `json:"rates,omitzero"`
	// OpenAt is the number of coordinators with an open circuit, among Of coordinators; in Sums only.
	OpenAt int `json:"-"`
	Of     int `json:"-"`
}

// Exchange is the state of an exchange.
type Exchange struct {
	// Broker is the broker's name; empty is the default broker.
	Broker string `json:"broker,omitzero"`
	Name   string `json:"name"`
	// AckedAt is the time of the last acknowledgement.
	AckedAt time.Time `json:"acked_at,omitzero"`
	// FailedAt is the time of the last failure, and Failure its cause.
	FailedAt time.Time `json:"failed_at,omitzero"`
	Failure  string    `json:"failure,omitzero"`
	// Outcomes counts the publishings, by outcome.
	Outcomes [halfmsg.Unsent + 1]int64 `json:"outcomes,omitzero"`
	// Rates are acknowledged messages (Out) and failed publishes (Refused) a second, in a Report and in Sums only.
	Rates Rates `json:"rates,omitzero"`
}

// Acked is how many publishings the broker acknowledged.
func (e Exchange) Acked() int64 { return e.Outcomes[halfmsg.Acked] }

// Failed is how many publishings were not acknowledged.
func (e Exchange) Failed() int64 {
	return e.Outcomes[halfmsg.Refused] + e.Outcomes[halfmsg.Unsure] + e.Outcomes[halfmsg.Unsent]
}

// New returns an empty Registry.
func New() *Registry {
	return &Registry{producers: map[string]*Producer{}, exchanges: map[string]*Exchange{}}
}

// entry returns the entry of a name, or the shared entry once there are too many names.
func entry[T any](all map[string]*T, name string, empty func(name string) *T) *T {
	if known := all[name]; known != nil {
		return known
	}
	if len(all) >= MaxNamed {
		name = Other
	}
	if all[name] == nil {
		all[name] = empty(name)
	}
	return all[name]
}

func (b *Registry) updateProducer(name string, see func(p *Producer)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	see(entry(b.producers, name, func(name string) *Producer { return &Producer{Name: name} }))
}

func (b *Registry) updateExchange(broker, name string, see func(e *Exchange)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	see(entry(b.exchanges, broker+"\x00"+name, func(key string) *Exchange {
		if key == Other {
			return &Exchange{Name: Other}
		}
		return &Exchange{Broker: broker, Name: name}
	}))
}

// Confirmed records a Confirm call. Of several verdicts, UNKNOWN and UNAVAILABLE win as the last verdict.
func (b *Registry) Confirmed(
	producer string, messages int, verdicts map[string]halfmsg.Verdict, took time.Duration, err error,
) {
	b.updateProducer(producer, func(p *Producer) {
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

// Paused records that the circuit of a target opens or closes.
func (b *Registry) Paused(producer string, paused bool) {
	b.updateProducer(producer, func(p *Producer) {
		if paused {
			p.Paused++
			return
		}
		if p.Paused = max(0, p.Paused-1); p.Paused == 0 {
			p.ClosedAt = time.Now()
		}
	})
}

// Published records a broker's answer about messages for an exchange.
func (b *Registry) Published(broker, exchange string, outcome halfmsg.Outcome, messages int) {
	b.updateExchange(broker, exchange, func(e *Exchange) {
		e.Outcomes[outcome] += int64(messages)
		if outcome == halfmsg.Acked {
			e.AckedAt = time.Now()
		} else {
			e.FailedAt = time.Now()
		}
	})
}

// Failed records why a message for an exchange was not acknowledged.
func (b *Registry) Failed(broker, exchange string, cause error) {
	b.updateExchange(broker, exchange, func(e *Exchange) {
		e.FailedAt, e.Failure = time.Now(), "no acknowledgement"
		if cause != nil {
			e.Failure = cause.Error()
		}
	})
}

// Stored counts half messages of a producer.
func (b *Registry) Stored(producer string, messages int64) {
	b.updateProducer(producer, func(p *Producer) { p.Stored += messages })
}

// Delivered counts acknowledged messages of a producer.
func (b *Registry) Delivered(producer string, messages int64) {
	b.updateProducer(producer, func(p *Producer) { p.Acked += messages })
}

// Acked is how many messages the broker acknowledged since the start.
func (b *Registry) Acked() (n int64) {
	for _, e := range b.Exchanges() {
		n += e.Acked()
	}
	return n
}

// Producers lists the producers by name.
func (b *Registry) Producers() []Producer {
	return sorted(b, b.producers, func(p Producer) string { return p.Name })
}

// Exchanges lists the exchanges by broker and name.
func (b *Registry) Exchanges() []Exchange {
	return sorted(b, b.exchanges, func(e Exchange) string { return e.Broker + "\x00" + e.Name })
}

func sorted[T any](b *Registry, all map[string]*T, name func(T) string) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := make([]T, 0, len(all))
	for known := range maps.Values(all) {
		lines = append(lines, *known)
	}
	slices.SortFunc(lines, func(a, b T) int { return cmp.Compare(name(a), name(b)) })
	return lines
}
