package console

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// mostSeen is how many producers, and how many exchanges, have series of their own. Whoever comes later is other.
const mostSeen = 100

// other is the label of all that came too late for one of their own.
const other = "other"

// seen keeps the series of names that were seen, ready to be counted on. It is safe for concurrent use.
type seen[T any] struct {
	create func(label string) T

	mu    sync.RWMutex
	known map[string]T
	// full says that there is no room for more, and that others stands for them.
	full   bool
	others T
}

func newSeen[T any](create func(label string) T) *seen[T] {
	return &seen[T]{create: create, known: map[string]T{}}
}

// of returns the series of a name: its own, as long as there is room for one.
func (s *seen[T]) of(name string) T {
	s.mu.RLock()
	series, known := s.known[name]
	if !known && s.full {
		series, known = s.others, true
	}
	s.mu.RUnlock()
	if known {
		return series
	}
	return s.enter(name)
}

func (s *seen[T]) enter(name string) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if series, known := s.known[name]; known {
		return series
	}
	if len(s.known) < mostSeen {
		s.known[name] = s.create(name)
		return s.known[name]
	}
	if !s.full {
		s.others, s.full = s.create(other), true
	}
	return s.others
}

// producerSeries are the series of one producer.
type producerSeries struct {
	verdicts            map[halfmsg.Verdict]prometheus.Counter
	answered, unreached prometheus.Counter // calls
	unreachable         prometheus.Counter // messages
	paused              prometheus.Gauge
}

func (m *Metrics) newProducer(label string) *producerSeries {
	p := &producerSeries{
		verdicts:    map[halfmsg.Verdict]prometheus.Counter{},
		answered:    m.confirmCalls.WithLabelValues(label, "answered"),
		unreached:   m.confirmCalls.WithLabelValues(label, "unreachable"),
		unreachable: m.confirms.WithLabelValues(label, "unreachable"),
		paused:      m.targetsPaused.WithLabelValues(label),
	}
	for _, v := range []halfmsg.Verdict{halfmsg.VerdictCommitted, halfmsg.VerdictRolledBack, halfmsg.VerdictUnknown} {
		p.verdicts[v] = m.confirms.WithLabelValues(label, v.String())
	}
	return p
}

// exchangeSeries are the series of one exchange, by outcome.
type exchangeSeries map[halfmsg.Outcome]prometheus.Counter

func (m *Metrics) newExchange(label string) exchangeSeries {
	if label == "" {
		label = "(default)" // Prometheus takes an empty label for none
	}
	e := exchangeSeries{}
	for _, o := range []halfmsg.Outcome{halfmsg.Acked, halfmsg.Refused, halfmsg.Unsure, halfmsg.Unsent} {
		e[o] = m.publishes.WithLabelValues(label, o.String())
	}
	return e
}

// What follows makes metrics of each kind and registers them.

func (m *Metrics) register(c prometheus.Collector) { m.registry.MustRegister(c) }

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	m.register(c)
	return c
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.register(c)
	return c
}

func (m *Metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.register(g)
	return g
}

// seconds reach from a millisecond, which is a good answer, to ten minutes, after which somebody was called.
func (m *Metrics) seconds(name, help string) prometheus.Observer {
	h := prometheus.NewHistogram(histogram(name, help, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120, 600))
	m.register(h)
	return h
}

// secondsBy reach from a millisecond to half a minute, which is a lease: no call takes longer.
func (m *Metrics) secondsBy(name, help, label string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(
		histogram(name, help, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30), []string{label})
	m.register(h)
	return h
}

// counts reach from one to the largest batch there is. Small whole numbers need no native buckets.
func (m *Metrics) counts(name, help, label string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: []float64{1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000},
	}, []string{label})
	m.register(h)
	return h
}

// histogram has classic buckets for those who need them, and native ones, within 10 % of the truth, for those who ask.
func histogram(name, help string, buckets ...float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
	}
}
