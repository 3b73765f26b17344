package console

import "github.com/prometheus/client_golang/prometheus"

// The constructors of each kind of metric. They also register the metric.

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

// seconds reach from a millisecond, which is a good answer, to ten minutes, after which an operator was called.
func (m *Metrics) seconds(name, help string) prometheus.Observer {
	h := prometheus.NewHistogram(
		histogram(name, help, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120, 600),
	)
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

// counts reach from 1 to the largest batch. Small whole numbers need no native buckets.
func (m *Metrics) counts(name, help, label string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: []float64{1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000},
	}, []string{label})
	m.register(h)
	return h
}

// histogram has classic buckets and, for scrapers that ask, native buckets within 10 % of the true value.
func histogram(name, help string, buckets ...float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
	}
}
