package console

import "github.com/prometheus/client_golang/prometheus"

// UnrelayedRows are waiting rows of an outbox in plain SQL whose producer has no relay.
type UnrelayedRows struct {
	// Database is the NAME of outbox.NAME.
	Database, Producer string
	Rows               int64
}

// unworkedCollector is a prometheus.Collector of what no part of the coordinator works on.
type unworkedCollector struct {
	messages func() map[string]int64
	rows     func() []UnrelayedRows
}

var (
	withoutBrokerDesc = prometheus.NewDesc("msghandler_messages_without_broker",
		"Committed messages that wait for a broker that this coordinator does not know.", []string{"broker"}, nil)
	unrelayedDesc = prometheus.NewDesc("msghandler_outbox_unrelayed_messages",
		"Waiting rows of an outbox in plain SQL whose producer no outbox of this coordinator relays; 10,000 at most.",
		[]string{"database", "producer"}, nil)
)

// Unworked exports the messages of unknown brokers, by broker, and the rows of producers without a relay.
func (m *Metrics) Unworked(messages func() map[string]int64, rows func() []UnrelayedRows) {
	m.registry.MustRegister(unworkedCollector{messages, rows})
}

// Describe implements prometheus.Collector.
func (unworkedCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- withoutBrokerDesc
	ch <- unrelayedDesc
}

// Collect implements prometheus.Collector.
func (c unworkedCollector) Collect(ch chan<- prometheus.Metric) {
	for broker, count := range c.messages() {
		ch <- prometheus.MustNewConstMetric(withoutBrokerDesc, prometheus.GaugeValue, float64(count), broker)
	}
	for _, r := range c.rows() {
		ch <- prometheus.MustNewConstMetric(unrelayedDesc, prometheus.GaugeValue, float64(r.Rows), r.Database, r.Producer)
	}
}
