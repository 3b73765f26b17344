package console

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/peerstats"
)

// Lateness exports by how much the coordinator ran late since its start.
func (m *Metrics) Lateness(total func() time.Duration) {
	m.register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "msghandler_late_seconds_total",
		Help: "By how much the coordinator ran too late, because it had no CPU or was paused; up to 20 ms at once do not " +
			"count.",
	}, func() float64 { return total().Seconds() }))
}

// Latencies counts how long scripts about messages took, and how long brokers took to acknowledge.
func (m *Metrics) Latencies() (redis peerstats.Counted, brokers map[string]peerstats.Counted) {
	brokers = map[string]peerstats.Counted{}
	m.acks.Range(func(broker, latency any) bool {
		brokers[broker.(string)] = latency.(*peerstats.Latency).Counts() //nolint:forcetypeassert // as PublishedBatch stores
		return true
	})
	return m.scripts.Counts(), brokers
}

// acknowledgements are the latencies of a broker.
func (m *Metrics) acknowledgements(broker string) *peerstats.Latency {
	known, there := m.acks.Load(broker)
	if !there {
		known, _ = m.acks.LoadOrStore(broker, new(peerstats.Latency))
	}
	return known.(*peerstats.Latency) //nolint:forcetypeassert // nothing else is stored
}
