package console

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
)

// peerCollector is a prometheus.Collector of the counts of producers and exchanges. The series are bounded as the
// entries of the registry are; the rest is counted as other.
type peerCollector struct{ peers *peerstats.Registry }

var (
	publishesDesc = prometheus.NewDesc("msghandler_publishes_total",
		"Publish outcomes by broker and exchange, without copies to the dead-letter exchange.",
		[]string{"broker", "exchange", "outcome"}, nil)
	confirmsDesc = prometheus.NewDesc(
		"msghandler_confirms_total",
		"Messages that producers were asked about, and the answer: committed, rolled_back, unknown, unavailable, or "+
			"unreachable.",
		[]string{"producer", "result"},
		nil,
	)
	confirmCallsDesc = prometheus.NewDesc("msghandler_confirm_calls_total",
		"Confirm calls, by result: answered or unreachable.", []string{"producer", "result"}, nil)
	halfMessagesDesc = prometheus.NewDesc("msghandler_half_messages_total",
		"Half messages that were stored, by producer.", []string{"producer"}, nil)
	targetsPausedDesc = prometheus.NewDesc("msghandler_callback_targets_paused",
		"Callback targets of a producer with an open circuit breaker.",
		[]string{"producer"}, nil)
)

// Describe implements prometheus.Collector.
func (c peerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		publishesDesc, confirmsDesc, confirmCallsDesc, halfMessagesDesc, targetsPausedDesc,
	} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c peerCollector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.peers.Producers() {
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
		ch <- prometheus.MustNewConstMetric(halfMessagesDesc, prometheus.CounterValue, float64(p.Stored), p.Name)
		ch <- prometheus.MustNewConstMetric(targetsPausedDesc, prometheus.GaugeValue, float64(p.Paused), p.Name)
	}
	for label, e := range c.byLabel() {
		for _, o := range []halfmsg.Outcome{halfmsg.Acked, halfmsg.Refused, halfmsg.Unsure, halfmsg.Unsent} {
			ch <- prometheus.MustNewConstMetric(publishesDesc, prometheus.CounterValue, float64(e.Outcomes[o]), label.broker,
				label.exchange, o.String())
		}
	}
}

// exchangeLabels are the labels of an exchange.
type exchangeLabels struct{ broker, exchange string }

// unnamed is the label of the default broker and of the default exchange, because for Prometheus an empty label is no
// label.
const unnamed = "(default)"

// byLabel returns the exchanges by their labels. An exchange with the very name of unnamed is merged.
func (c peerCollector) byLabel() map[exchangeLabels]peerstats.Exchange {
	labelled := map[exchangeLabels]peerstats.Exchange{}
	for _, e := range c.peers.Exchanges() {
		label := exchangeLabels{cmp.Or(e.Broker, unnamed), cmp.Or(e.Name, unnamed)}
		for outcome, n := range labelled[label].Outcomes {
			e.Outcomes[outcome] += n
		}
		labelled[label] = e
	}
	return labelled
}
