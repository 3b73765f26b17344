package peerstats

import (
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// ExchangeName names an exchange of a broker. An empty broker is the default broker.
type ExchangeName struct{ Broker, Name string }

// ProducerCounts are half messages stored, messages acknowledged and calls refused for good. Asked, Unknown and Failed
// count the messages of Confirm calls, as in Rates.
type ProducerCounts struct{ Stored, Acked, Refused, Asked, Unknown, Failed int64 }

// ExchangeCounts are messages acknowledged, publishes refused, and publishes without a clear answer.
type ExchangeCounts struct{ Acked, Refused, Unclear int64 }

// Snapshot has the counts of a coordinator at a time, or what was added between two times.
type Snapshot struct {
	At time.Time
	// In and Out are half messages stored and messages acknowledged.
	In, Out int64
	// Refused is the number of calls, and messages of batches, with the answer RESOURCE_EXHAUSTED.
	Refused   int64
	Latency   Counted
	Producers map[string]ProducerCounts
	Exchanges map[ExchangeName]ExchangeCounts
}

// AddPeers adds the counts of producers and exchanges.
func (s *Snapshot) AddPeers(producers []Producer, refusals []Refusal, exchanges []Exchange) {
	s.Producers, s.Exchanges = map[string]ProducerCounts{}, map[ExchangeName]ExchangeCounts{}
	for _, p := range producers {
		counts := ProducerCounts{
			Stored: p.Stored, Acked: p.Acked, Asked: p.Unreachable, Unknown: p.Verdicts[halfmsg.VerdictUnknown],
			Failed: p.Unreachable + p.Verdicts[halfmsg.VerdictUnavailable],
		}
		for _, n := range p.Verdicts {
			counts.Asked += n
		}
		s.Producers[p.Name] = counts
	}
	for _, r := range refusals {
		counts := s.Producers[r.Producer]
		counts.Refused += r.Count
		s.Producers[r.Producer] = counts
	}
	for _, e := range exchanges {
		s.Exchanges[ExchangeName{e.Broker, e.Name}] = ExchangeCounts{
			Acked: e.Acked(), Refused: e.Outcomes[halfmsg.Refused],
			Unclear: e.Outcomes[halfmsg.Unsure] + e.Outcomes[halfmsg.Unsent],
		}
	}
}

// Since is what was added since an earlier snapshot.
func (s Snapshot) Since(before Snapshot) Snapshot {
	added := Snapshot{
		At: s.At, In: s.In - before.In, Out: s.Out - before.Out, Refused: s.Refused - before.Refused,
		Latency:   s.Latency.Since(before.Latency),
		Producers: map[string]ProducerCounts{}, Exchanges: map[ExchangeName]ExchangeCounts{},
	}
	for name, now := range s.Producers {
		then := before.Producers[name]
		added.Producers[name] = ProducerCounts{
			now.Stored - then.Stored, now.Acked - then.Acked, since(now.Refused, then.Refused),
			now.Asked - then.Asked, now.Unknown - then.Unknown, now.Failed - then.Failed,
		}
	}
	for name, now := range s.Exchanges {
		then := before.Exchanges[name]
		added.Exchanges[name] = ExchangeCounts{
			now.Acked - then.Acked, now.Refused - then.Refused, now.Unclear - then.Unclear,
		}
	}
	return added
}

// since is the difference of two counts. The entry of a refused producer is forgotten after a time, and begins again.
func since(now, then int64) int64 {
	if now < then {
		return now
	}
	return now - then
}

const (
	// meterWindow is the time over which rates are measured, and meterStep the least time between two snapshots.
	meterWindow = 30 * time.Second
	meterStep   = 5 * time.Second
)

// Meter measures what was added within the last half minute. The zero value is ready, and a Meter is safe for
// concurrent use.
type Meter struct {
	mu   sync.Mutex
	past []Snapshot
}

// Measure returns what was added since the oldest snapshot of the last half minute, and in which time.
func (m *Meter) Measure(now Snapshot) (added Snapshot, within time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.past) > 1 && now.At.Sub(m.past[0].At) > meterWindow {
		m.past = slices.Delete(m.past, 0, 1)
	}
	if n := len(m.past); n == 0 || now.At.Sub(m.past[n-1].At) >= meterStep {
		m.past = append(m.past, now)
	}
	return now.Since(m.past[0]), now.At.Sub(m.past[0].At)
}
