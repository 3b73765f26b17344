package console

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/console/seen"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// boarded is a prometheus.Collector of what was seen of producers and exchanges. As many of them have series as have a
// line on the board; the rest is other.
type boarded struct{ *seen.Board }

var (
	publishesDesc = prometheus.NewDesc("msghandler_publishes_total",
		"What the broker said of publishings, copies to the dead-letter exchange left out.", []string{"exchange", "outcome"}, nil)
	confirmsDesc = prometheus.NewDesc("msghandler_confirms_total",
		"Messages that producers were asked about, and the answer: committed, rolled_back, unknown, unavailable, or unreachable.",
		[]string{"producer", "result"}, nil)
	confirmCallsDesc = prometheus.NewDesc("msghandler_confirm_calls_total",
		"Confirm calls, and whether the producer was reached: answered or unreachable.", []string{"producer", "result"}, nil)
	targetsPausedDesc = prometheus.NewDesc("msghandler_callback_targets_paused",
		"Callback targets of a producer whose breaker is open: left alone for a while because they could not be reached.",
		[]string{"producer"}, nil)
)

// Describe implements prometheus.Collector.
func (b boarded) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{publishesDesc, confirmsDesc, confirmCallsDesc, targetsPausedDesc} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (b boarded) Collect(ch chan<- prometheus.Metric) {
	for _, p := range b.Producers() {
		count := func(desc *prometheus.Desc, n int64, result string) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), p.Name, result)
		}
		for _, v := range []halfmsg.Verdict{
			halfmsg.VerdictCommitted, halfmsg.VerdictRolledBack, halfmsg.VerdictUnknown, halfmsg.VerdictUnavailable,
		} {
			count(confirmsDesc, p.Verdicts[v], v.String())
		}
		count(confirmsDesc, p.Unreachable, "unreachable")
		count(confirmCallsDesc, p.Answered, "answered")
		count(confirmCallsDesc, p.Unreached, "unreachable")
		ch <- prometheus.MustNewConstMetric(targetsPausedDesc, prometheus.GaugeValue, float64(p.Paused), p.Name)
	}
	for label, e := range b.byLabel() {
		for _, o := range []halfmsg.Outcome{halfmsg.Acked, halfmsg.Refused, halfmsg.Unsure, halfmsg.Unsent} {
			ch <- prometheus.MustNewConstMetric(publishesDesc, prometheus.CounterValue, float64(e.Outcomes[o]), label, o.String())
		}
	}
}

// byLabel gives the exchanges as Prometheus names them, which takes an empty label for none. Somebody may have an exchange
// of that very name; the two are counted as one.
func (b boarded) byLabel() map[string]seen.Exchange {
	labelled := map[string]seen.Exchange{}
	for _, e := range b.Exchanges() {
		label := cmp.Or(e.Name, "(default)")
		for outcome, n := range labelled[label].Outcomes {
			e.Outcomes[outcome] += n
		}
		labelled[label] = e
	}
	return labelled
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
