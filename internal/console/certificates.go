package console

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/expiry"
)

// Certificates exports of each key of the configuration when the first certificate behind it ends.
func (m *Metrics) Certificates(soonest func() map[string]expiry.Certificate) {
	m.register(certificateCollector(soonest))
}

// certificateCollector is a prometheus.Collector of the certificates in use.
type certificateCollector func() map[string]expiry.Certificate

var (
	certificateEndsDesc = prometheus.NewDesc("msghandler_certificate_expires_timestamp_seconds",
		"When the first certificate ends that a key of the configuration leads to, with its chain: of files, and of "+
			"servers that showed one. The key producers is all producers that are called.", []string{"key"}, nil)
	certificateLifeDesc = prometheus.NewDesc("msghandler_certificate_lifetime_seconds",
		"For how long that certificate was issued: automatic renewal is due when a third of it is left.",
		[]string{"key"}, nil)
)

// Describe implements prometheus.Collector.
func (certificateCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- certificateEndsDesc
	ch <- certificateLifeDesc
}

// Collect implements prometheus.Collector.
func (c certificateCollector) Collect(ch chan<- prometheus.Metric) {
	for key, first := range c() {
		ch <- prometheus.MustNewConstMetric(certificateEndsDesc, prometheus.GaugeValue, float64(first.Ends.Unix()), key)
		ch <- prometheus.MustNewConstMetric(certificateLifeDesc, prometheus.GaugeValue,
			first.Ends.Sub(first.Begins).Seconds(), key)
	}
}
