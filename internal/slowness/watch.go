// Package slowness finds what is slow at a coordinator, though nothing fails: Redis, a broker, the coordinator itself,
// and producers that answer badly or send too much. One rule compares all of them with their own past, which is in
// memory.
package slowness

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/peerstats"
)

// Interval is how often a Watch is to observe.
const Interval = 5 * time.Second

const (
	// latencyWindow is the time of which the median latency is judged. Calls are fewer while they are slow, so the window
	// must lie after the onset for the median to show it.
	latencyWindow = 15 * time.Second
	// lateWindow is the time of which the lateness is judged, as long as that of the rates of package peerstats.
	lateWindow = 30 * time.Second
	// tolerance is how much less than its time a window may have: observations come a little early or late.
	tolerance = time.Second
	// leastCalls and leastBatches are how many latencies a median needs.
	leastCalls, leastBatches = 5, 3
	// leastAnswers is how many answers of a producer a share needs, within the half minute of the rates.
	leastAnswers, ratesOver = 20, 30
	// disturbed is the lateness from which a coordinator cannot judge the latencies that it measures.
	disturbed = .1
	// afterCircuit is for how long after an open circuit the errors of a producer are no finding: the circuit was one.
	afterCircuit = time.Minute
	// maxSeries bounds the memory. Names of producers come from outside. At the bound a series without a value for idle is
	// forgotten for a new one.
	maxSeries, idle = 1000, 10 * time.Minute
)

// Kind is what is slow.
type Kind int

// The kinds, in the order of All.
const (
	Starved Kind = iota
	Redis
	Broker
	Unknown
	Errors
	Runaway
)

// rules have the reasons of their numbers in docs/reference/findings.md. Latencies are in seconds, rates in messages a
// second, the others are shares.
var rules = map[Kind]rule{
	Starved: {floor: .2, anyway: .2},
	Redis:   {floor: .1, times: 5, anyway: .15, halfLife: 10 * time.Minute},
	Broker:  {floor: 1, times: 5, anyway: 3, halfLife: 10 * time.Minute},
	Unknown: {floor: .15, times: 3, halfLife: time.Hour},
	Errors:  {floor: .25, times: 3, halfLife: time.Hour},
	Runaway: {floor: 50, times: 10, halfLife: 72 * time.Hour, catchUp: 30 * time.Minute},
}

// Measured is what a coordinator measures. Counts are those since its start.
type Measured struct {
	// Late is by how much the coordinator ran too late.
	Late time.Duration
	// Periods and Throttled are the periods of the CPU limit, and those in which the limit stopped the coordinator.
	Periods, Throttled int64
	// Redis counts the latencies of scripts about messages, and Brokers those of acknowledgements by broker.
	Redis   peerstats.Counted
	Brokers map[string]peerstats.Counted
	// Producers are those of all coordinators, with their rates.
	Producers []peerstats.Producer
	// Limited says whether the policy bounds the rate of a producer already.
	Limited func(producer string) bool
}

// Slow is something slow.
type Slow struct {
	Kind Kind
	// Name is the broker or the producer.
	Name string
	// Value is the latest slow value, and Usual what is usual; 0 without a past.
	Value, Usual float64
	// Since is when the slowness was seen first.
	Since time.Time
	// Throttled is the share of periods in which the CPU limit stopped the coordinator.
	Throttled float64
}

// OfProducer says that a producer is slow or unusual, as all coordinators judge by the counts of all.
func (s Slow) OfProducer() bool { return s.Kind >= Unknown }

// Watch looks for what is slow. The zero value is ready. A Watch is safe for concurrent use.
type Watch struct {
	mu     sync.Mutex
	past   []snapshot
	series map[seriesName]*series
	// circuits has when the circuit of a producer was last seen open.
	circuits map[string]time.Time
	all      []Slow
}

type seriesName struct {
	kind Kind
	name string
}

type snapshot struct {
	Measured
	at time.Time
}

// All lists what is slow, by kind and name.
func (w *Watch) All() []Slow {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// Observe judges what was measured up to now.
func (w *Watch) Observe(m Measured, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.series == nil {
		w.series, w.circuits = map[seriesName]*series{}, map[string]time.Time{}
	}
	w.judgeLateness(m, now)
	w.judgeLatencies(m, now)
	for i := range m.Producers {
		if p := &m.Producers[i]; p.Name != peerstats.Other {
			w.judgeProducer(p, m.Limited(p.Name), now)
		}
	}
	for key, s := range w.series {
		if !s.observedAt.Equal(now) { // the producer is not told of any more
			s.observe(rules[key.kind], 0, false, now)
		}
	}
	maps.DeleteFunc(w.circuits, func(_ string, at time.Time) bool { return now.Sub(at) > afterCircuit })
	w.remember(m, now)
	w.list(m, now)
}

// remember keeps what was measured, for as long as the windows reach.
func (w *Watch) remember(m Measured, now time.Time) {
	m.Producers, m.Limited = nil, nil
	w.past = append(w.past, snapshot{m, now})
	for len(w.past) > 1 && now.Sub(w.past[1].at) >= lateWindow {
		w.past = slices.Delete(w.past, 0, 1)
	}
}

// before is the latest snapshot from before a window.
func (w *Watch) before(window time.Duration, now time.Time) (s snapshot, known bool) {
	for _, s := range slices.Backward(w.past) {
		if now.Sub(s.at) >= window-tolerance {
			return s, true
		}
	}
	return snapshot{}, false
}

// lateness is the share of a window by which the coordinator ran too late.
func (w *Watch) lateness(m Measured, window time.Duration, now time.Time) (share float64, known bool) {
	then, known := w.before(window, now)
	if !known {
		return 0, false
	}
	return float64(m.Late-then.Late) / float64(now.Sub(then.at)), true
}

func (w *Watch) judgeLateness(m Measured, now time.Time) {
	share, known := w.lateness(m, lateWindow, now)
	w.observe(Starved, "", share, known, now)
}

// judgeLatencies judges Redis and the brokers, unless the coordinator itself was late.
func (w *Watch) judgeLatencies(m Measured, now time.Time) {
	then, known := w.before(latencyWindow, now)
	share, _ := w.lateness(m, latencyWindow, now)
	known = known && share < disturbed
	median := func(counts, before peerstats.Counted, least uint64) (float64, bool) {
		added := counts.Since(before)
		d, _ := added.Quantile(.5)
		return d.Seconds(), known && added.Total() >= least
	}
	value, enough := median(m.Redis, then.Redis, leastCalls)
	w.observe(Redis, "", value, enough, now)
	for broker, counts := range m.Brokers {
		value, enough := median(counts, then.Brokers[broker], leastBatches)
		w.observe(Broker, broker, value, enough, now)
	}
}

func (w *Watch) judgeProducer(p *peerstats.Producer, limited bool, now time.Time) {
	if p.Paused > 0 {
		w.circuits[p.Name] = now
	}
	asked := p.Rates.Asked
	enough := asked*ratesOver >= leastAnswers
	steady := now.Sub(w.circuits[p.Name]) > afterCircuit
	w.observe(Unknown, p.Name, p.Rates.Unknown/asked, enough, now)
	w.observe(Errors, p.Name, p.Rates.Failed/asked, enough && steady, now)
	w.observe(Runaway, p.Name, p.Rates.In, p.Rates.In > 0 && !limited, now)
}

func (w *Watch) observe(kind Kind, name string, value float64, known bool, now time.Time) {
	key := seriesName{kind, name}
	s := w.series[key]
	if s == nil {
		if !known || len(w.series) >= maxSeries && !w.forgetIdle(now) {
			return
		}
		s = &series{begun: now}
		w.series[key] = s
	}
	s.observe(rules[kind], value, known, now)
}

// forgetIdle forgets the series that has been without a value for the longest time, if one is idle.
func (w *Watch) forgetIdle(now time.Time) bool {
	var oldest seriesName
	var since time.Time
	for key, s := range w.series {
		if s.slowSince.IsZero() && now.Sub(s.knownAt) > idle && (since.IsZero() || s.knownAt.Before(since)) {
			oldest, since = key, s.knownAt
		}
	}
	delete(w.series, oldest)
	return !since.IsZero()
}

func (w *Watch) list(m Measured, now time.Time) {
	w.all = nil
	for key, s := range w.series {
		if s.slowSince.IsZero() {
			continue
		}
		slow := Slow{Kind: key.kind, Name: key.name, Value: s.value, Since: s.slowSince}
		if s.minutes >= leastPast {
			slow.Usual = s.usualAt(rules[key.kind], now)
		}
		if periods := m.Periods - w.past[0].Periods; key.kind == Starved && periods > 0 {
			slow.Throttled = float64(m.Throttled-w.past[0].Throttled) / float64(periods)
		}
		w.all = append(w.all, slow)
	}
	slices.SortFunc(w.all, func(a, b Slow) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
}
