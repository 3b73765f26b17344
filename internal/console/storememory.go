package console

import "github.com/prometheus/client_golang/prometheus"

// StoreMemory is the memory of a master of Redis, in bytes.
type StoreMemory struct {
	Server string
	// Used is what counts against the limit, and Limit is maxmemory; 0 without a limit.
	Used, Limit int64
}

// storeMemoryCollector is a prometheus.Collector of the memory of Redis.
type storeMemoryCollector struct{ masters func() []StoreMemory }

var (
	storeUsedDesc = prometheus.NewDesc("msghandler_redis_memory_used_bytes",
		"Memory of a master of Redis that counts against its limit.", []string{"server"}, nil)
	storeLimitDesc = prometheus.NewDesc("msghandler_redis_memory_limit_bytes",
		"Limit of the memory of a master of Redis (maxmemory); absent where there is no limit.", []string{"server"}, nil)
)

// StoreMemory exports the memory of the masters of Redis.
func (m *Metrics) StoreMemory(masters func() []StoreMemory) {
	m.registry.MustRegister(storeMemoryCollector{masters})
}

// Describe implements prometheus.Collector.
func (c storeMemoryCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- storeUsedDesc
	ch <- storeLimitDesc
}

// Collect implements prometheus.Collector.
func (c storeMemoryCollector) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.masters() {
		ch <- prometheus.MustNewConstMetric(storeUsedDesc, prometheus.GaugeValue, float64(m.Used), m.Server)
		if m.Limit > 0 {
			ch <- prometheus.MustNewConstMetric(storeLimitDesc, prometheus.GaugeValue, float64(m.Limit), m.Server)
		}
	}
}
