package console

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/ground/assert"
)

// assertionCollector is a prometheus.Collector of broken assertions. Rules are constant texts, so the series are few.
type assertionCollector struct{}

var assertionsBrokenDesc = prometheus.NewDesc("msghandler_assertions_broken_total",
	"How often what must hold in the coordinator did not, by what must hold: a defect of msghandler to report with the "+
		"rule and the version.", []string{"rule"}, nil)

// Describe implements prometheus.Collector.
func (assertionCollector) Describe(ch chan<- *prometheus.Desc) { ch <- assertionsBrokenDesc }

// Collect implements prometheus.Collector.
func (assertionCollector) Collect(ch chan<- prometheus.Metric) {
	for rule, times := range assert.Broken() {
		ch <- prometheus.MustNewConstMetric(assertionsBrokenDesc, prometheus.CounterValue, float64(times), rule)
	}
}
