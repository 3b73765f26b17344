package console

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/peerstats"
)

// Refused counts a producer's call, or a message of a batch, that was refused for good. due says that a log line is
// due, and unlogged is the number of refusals of this producer and reason without a log line.
func (m *Metrics) Refused(producer, reason, cause string) (unlogged int64, due bool) {
	return m.refusals.Add(producer, reason, cause, time.Now())
}

// Refusals lists the refusals by producer and reason.
func (m *Metrics) Refusals() []peerstats.Refusal { return m.refusals.All() }

// HalfMessagesRefused counts half messages of a producer that were not stored.
func (m *Metrics) HalfMessagesRefused(producer, reason string, messages int64) {
	m.unstored.Count(producer, reason, messages, time.Now())
}

// refusalCollector is a prometheus.Collector of refusals.
type refusalCollector struct {
	desc     *prometheus.Desc
	refusals *peerstats.Refusals
}

var refusalsDesc = prometheus.NewDesc("msghandler_refusals_total",
	"Calls of a producer, and messages of its batches, that were refused for good: "+
		"CALLBACK_FORBIDDEN (callbacks.allow), CALLER_FORBIDDEN (its rights), "+
		"POLICY_FORBIDDEN (its policy), or INVALID_ARGUMENT (of SendHalfMessage and SendHalfMessages). "+
		"Those for which no one attends now: NOT_ATTENDED. "+
		"And its answers to Confirm from another marker store than the messages name: PRODUCER_SPLIT. "+
		"Calls without a valid identity are in msghandler_refused_calls_total, without the name that they claim.",
	[]string{"producer", "reason"}, nil)

var unstoredDesc = prometheus.NewDesc("msghandler_half_messages_refused_total",
	"Half messages that were not stored, by producer and reason of the answer: STORE_FULL, PRODUCER_QUOTA, "+
		"STORE_UNAVAILABLE, CALLBACK_FORBIDDEN and the other reasons of the API.",
	[]string{"producer", "reason"}, nil)

// Describe implements prometheus.Collector.
func (c refusalCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c refusalCollector) Collect(ch chan<- prometheus.Metric) {
	for _, line := range c.refusals.All() {
		ch <- prometheus.MustNewConstMetric(
			c.desc, prometheus.CounterValue, float64(line.Count), line.Producer, line.Reason)
	}
}

// UncleanEnds exports the number of coordinators that ended recently without a clean stop.
func (m *Metrics) UncleanEnds(lately func() int) {
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "msghandler_unclean_ends",
		Help: "Coordinators on this Redis that ended without a clean stop within the last ten minutes.",
	}, func() float64 { return float64(lately()) }))
}

// DeadLetters exports the number of messages in the watched dead-letter queues.
func (m *Metrics) DeadLetters(depths func() map[string]int) {
	m.registry.MustRegister(queueCollector{deadLettersDesc, depths})
}

var deadLettersDesc = prometheus.NewDesc("msghandler_dead_letter_queue_messages",
	"Messages in a queue of events.dead_letter_queues: consumers have given them up.", []string{"queue"}, nil)
