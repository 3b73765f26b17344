package peerstats

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

const (
	// maxReported bounds the producers, and the exchanges, of a report. The rest is one row, Other.
	maxReported = 50
	// maxReportedCause bounds the cause of a failure in a report, in bytes.
	maxReportedCause = 300
)

// Rates are numbers a second.
type Rates struct {
	In      float64 `json:"in,omitempty"`
	Out     float64 `json:"out,omitempty"`
	Refused float64 `json:"refused,omitempty"`
	// Asked are the messages that a producer was asked about, Unknown those with the answer UNKNOWN, and Failed those
	// without an answer or with UNAVAILABLE; of producers only.
	Asked   float64 `json:"asked,omitempty"`
	Unknown float64 `json:"unknown,omitempty"`
	Failed  float64 `json:"failed,omitempty"`
}

func (r *Rates) add(other Rates) {
	r.In += other.In
	r.Out += other.Out
	r.Refused += other.Refused
	r.Asked += other.Asked
	r.Unknown += other.Unknown
	r.Failed += other.Failed
}

// Report is how a coordinator sees its producers and exchanges, in a bounded number of rows.
type Report struct {
	// Rates are those of all messages: stored, acknowledged and refused with RESOURCE_EXHAUSTED.
	Rates Rates `json:"rates"`
	// Latency counts the latencies of the time over which rates are measured.
	Latency   Counted    `json:"latency,omitzero"`
	Producers []Producer `json:"producers,omitempty"`
	Exchanges []Exchange `json:"exchanges,omitempty"`
}

// NewReport makes a report. Added is what was added within a time.
func NewReport(producers []Producer, exchanges []Exchange, added Snapshot, within time.Duration) Report {
	rate := func(n int64) float64 {
		if within <= 0 {
			return 0
		}
		return float64(n) / within.Seconds()
	}
	r := Report{Latency: added.Latency}
	r.Rates = Rates{In: rate(added.In), Out: rate(added.Out), Refused: rate(added.Refused)}
	for _, p := range producers {
		counts := added.Producers[p.Name]
		p.Failure, p.Rates = cut(p.Failure), Rates{
			In: rate(counts.Stored), Out: rate(counts.Acked), Refused: rate(counts.Refused),
			Asked: rate(counts.Asked), Unknown: rate(counts.Unknown), Failed: rate(counts.Failed),
		}
		r.Producers = append(r.Producers, p)
	}
	for _, e := range exchanges {
		counts := added.Exchanges[ExchangeName{e.Broker, e.Name}]
		e.Failure, e.Rates = cut(e.Failure), Rates{Out: rate(counts.Acked), Refused: rate(counts.Refused + counts.Unclear)}
		r.Exchanges = append(r.Exchanges, e)
	}
	r.Producers = bounded(r.Producers, (*Producer).add, Producer{Name: Other})
	r.Exchanges = bounded(r.Exchanges, (*Exchange).add, Exchange{Name: Other})
	return r
}

// row is what producers and exchanges have in common.
type row interface {
	// key is the name.
	key() string
	// failing says that the last call failed.
	failing() bool
	rates() Rates
}

func (p Producer) key() string   { return p.Name }
func (p Producer) rates() Rates  { return p.Rates }
func (e Exchange) key() string   { return e.Broker + "\x00" + e.Name }
func (e Exchange) failing() bool { return e.FailedAt.After(e.AckedAt) }
func (e Exchange) rates() Rates  { return e.Rates }

func (p Producer) failing() bool {
	return p.Paused > 0 || p.FailedAt.After(p.AnsweredAt) && p.FailedAt.After(p.ClosedAt)
}

// downFor is for how long a failure counts. A peer that is still down fails again within this time: by default
// publishing is retried within two minutes, and a producer is asked again within five.
const downFor = 5 * time.Minute

// Down says that a circuit of the producer is open, or that its last call failed lately.
func (p Producer) Down(now time.Time) bool {
	return p.Paused > 0 || p.failing() && now.Sub(p.FailedAt) < downFor
}

// Down says that the last publish to the exchange failed lately.
func (e Exchange) Down(now time.Time) bool { return e.failing() && now.Sub(e.FailedAt) < downFor }

// bounded keeps the rows that fail and the busiest, and adds up the others.
func bounded[R row](rows []R, add func(*R, R), other R) []R {
	if len(rows) <= maxReported {
		return rows
	}
	urgency := func(r R) float64 {
		if r.failing() {
			return 1e12
		}
		return r.rates().In + r.rates().Out + r.rates().Refused
	}
	slices.SortStableFunc(rows, func(a, b R) int { return cmp.Compare(urgency(b), urgency(a)) })
	for _, r := range rows[maxReported-1:] {
		add(&other, r)
	}
	return append(rows[:maxReported-1:maxReported-1], other)
}

// add adds the counts of the same producer at another coordinator. The latest answer and the latest failure count.
func (p *Producer) add(other Producer) {
	if other.AnsweredAt.After(p.AnsweredAt) {
		p.AnsweredAt, p.Took, p.Verdict = other.AnsweredAt, other.Took, other.Verdict
	}
	if other.FailedAt.After(p.FailedAt) {
		p.FailedAt, p.Failure = other.FailedAt, other.Failure
	}
	if other.ClosedAt.After(p.ClosedAt) {
		p.ClosedAt = other.ClosedAt
	}
	p.Paused += other.Paused
	p.OpenAt += other.OpenAt
	p.Answered += other.Answered
	p.Unreached += other.Unreached
	p.Unreachable += other.Unreachable
	p.Stored += other.Stored
	p.Acked += other.Acked
	for verdict, n := range other.Verdicts {
		p.Verdicts[verdict] += n
	}
	p.Rates.add(other.Rates)
}

// add adds the counts of the same exchange at another coordinator. The latest failure counts.
func (e *Exchange) add(other Exchange) {
	if other.AckedAt.After(e.AckedAt) {
		e.AckedAt = other.AckedAt
	}
	if other.FailedAt.After(e.FailedAt) {
		e.FailedAt, e.Failure = other.FailedAt, other.Failure
	}
	for outcome, n := range other.Outcomes {
		e.Outcomes[outcome] += n
	}
	e.Rates.add(other.Rates)
}

// Shift moves all times of a report, which another coordinator wrote by its own clock.
func (r *Report) Shift(by time.Duration) {
	for i := range r.Producers {
		p := &r.Producers[i]
		p.AnsweredAt, p.FailedAt, p.ClosedAt = shifted(p.AnsweredAt, by), shifted(p.FailedAt, by), shifted(p.ClosedAt, by)
	}
	for i := range r.Exchanges {
		e := &r.Exchanges[i]
		e.AckedAt, e.FailedAt = shifted(e.AckedAt, by), shifted(e.FailedAt, by)
	}
}

// shifted is a later or an earlier time; no time stays none.
func shifted(t time.Time, by time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(by)
}

func cut(cause string) string {
	return strings.ToValidUTF8(cause[:min(len(cause), maxReportedCause)], "")
}

// Sums are the sums of the reports of all coordinators.
type Sums struct {
	// Coordinators is the number of reports.
	Coordinators int
	Rates        Rates
	// P50 and P99 are how long messages took from half message to acknowledgement; zero where none was acknowledged.
	P50, P99 time.Duration

	producers []Producer
	exchanges []Exchange
}

// Producers lists the producers by name.
func (s Sums) Producers() []Producer { return s.producers }

// Exchanges lists the exchanges by broker and name.
func (s Sums) Exchanges() []Exchange { return s.exchanges }

// Sum adds up reports.
func Sum(reports ...Report) Sums {
	sums := Sums{Coordinators: len(reports)}
	var latency Counted
	producers, exchanges := map[string]int{}, map[string]int{}
	for _, r := range reports {
		sums.Rates.add(r.Rates)
		for class, n := range r.Latency {
			latency[class] += n
		}
		for _, p := range r.Producers {
			p.OpenAt = min(p.Paused, 1)
			sums.producers = merge(sums.producers, producers, p, (*Producer).add)
		}
		for _, e := range r.Exchanges {
			sums.exchanges = merge(sums.exchanges, exchanges, e, (*Exchange).add)
		}
	}
	for i := range sums.producers {
		sums.producers[i].Of = len(reports)
	}
	sums.P50, _ = latency.Quantile(.5)
	sums.P99, _ = latency.Quantile(.99)
	slices.SortFunc(sums.producers, func(a, b Producer) int { return cmp.Compare(a.key(), b.key()) })
	slices.SortFunc(sums.exchanges, func(a, b Exchange) int { return cmp.Compare(a.key(), b.key()) })
	return sums
}

// merge adds a row to the row of the same name. Places are the places of the rows, by their names.
func merge[R row](rows []R, places map[string]int, r R, add func(*R, R)) []R {
	name := r.key()
	if i, known := places[name]; known {
		add(&rows[i], r)
		return rows
	}
	places[name] = len(rows)
	return append(rows, r)
}
