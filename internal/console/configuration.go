package console

import (
	"github.com/prometheus/client_golang/prometheus"
)

// newReloads makes the metrics of the configuration that is read again.
func newReloads() (failed, at prometheus.Gauge) {
	failed = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "msghandler_config_reload_failed",
		Help: "1 while the last reading of the configuration was refused and the earlier values stay in use.",
	})
	at = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "msghandler_config_read_timestamp_seconds",
		Help: "When the values of the configuration that are in use were read.",
	})
	return failed, at
}

// ConfigRead tells that the configuration was read, or why it was refused.
func (m *Metrics) ConfigRead(err error) {
	if err != nil {
		m.reloadFailed.Set(1)
		return
	}
	m.reloadFailed.Set(0)
	m.configRead.SetToCurrentTime()
}
