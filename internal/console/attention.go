package console

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/console/seen"
)

// Refused counts a call of a producer, or a message of a batch, that was refused for good. due says that the log should
// tell of it, and unlogged how many of the same producer and reason it has not told of.
func (m *Metrics) Refused(producer, reason, cause string) (unlogged int64, due bool) {
	return m.refusals.Add(producer, reason, cause, time.Now())
}

// Refusals lists what was refused, by producer and reason.
func (m *Metrics) Refusals() []seen.Refusal { return m.refusals.All() }

// refused is a prometheus.Collector of refusals.
type refused struct{ *seen.Refusals }

var refusalsDesc = prometheus.NewDesc("msghandler_refusals_total",
	"Calls of a producer, and messages of its batches, that were refused for good: "+
		"CALLBACK_FORBIDDEN (callbacks.allow), CALLER_FORBIDDEN (its certificate), or INVALID_ARGUMENT (of SendHalfMessage and SendHalfMessages).",
	[]string{"producer", "reason"}, nil)

// Describe implements prometheus.Collector.
func (r refused) Describe(ch chan<- *prometheus.Desc) { ch <- refusalsDesc }

// Collect implements prometheus.Collector.
func (r refused) Collect(ch chan<- prometheus.Metric) {
	for _, line := range r.All() {
		ch <- prometheus.MustNewConstMetric(
			refusalsDesc, prometheus.CounterValue, float64(line.Count), line.Producer, line.Reason)
	}
}

// UncleanEnds shows how many coordinators ended lately without a clean stop.
func (m *Metrics) UncleanEnds(lately func() int) {
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "msghandler_unclean_ends",
		Help: "Coordinators on this Redis that ended without a clean stop within the last ten minutes.",
	}, func() float64 { return float64(lately()) }))
}

// DeadLetters shows how many messages are in the broker's dead-letter queues that are watched.
func (m *Metrics) DeadLetters(depths func() map[string]int) {
	m.registry.MustRegister(watched{deadLettersDesc, depths})
}

var deadLettersDesc = prometheus.NewDesc("msghandler_dead_letter_queue_messages",
	"Messages in a queue of events.dead_letter_queues: consumers have given them up.", []string{"queue"}, nil)
