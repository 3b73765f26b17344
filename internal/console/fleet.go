package console

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Fleet counts the coordinators on one Redis.
type Fleet struct {
	// States has the running and the missing coordinators.
	States map[string]int
	// Restarts counts the coordinators that started again at the same place within the last hour.
	Restarts int
	// Looping counts the places where coordinators start again and again.
	Looping int
	// Versions and Configurations count the different ones among the running coordinators.
	Versions, Configurations int
}

// fleetCollector is a prometheus.Collector of the coordinators on one Redis.
type fleetCollector struct{ count func() Fleet }

var (
	fleetDesc = prometheus.NewDesc("msghandler_fleet_coordinators",
		"Coordinators on this Redis by state: running, or missing (silent for 20 s without a clean stop, and not "+
			"started again).",
		[]string{"state"}, nil)
	fleetRestartsDesc = prometheus.NewDesc("msghandler_fleet_restarts",
		"Coordinators on this Redis that started again at the same place within the last hour.", nil, nil)
	fleetLoopingDesc = prometheus.NewDesc("msghandler_fleet_restart_loops",
		"Places where coordinators started again three times or more within ten minutes.", nil, nil)
	fleetVersionsDesc = prometheus.NewDesc("msghandler_fleet_versions",
		"Different versions among the running coordinators on this Redis.", nil, nil)
	fleetConfigurationsDesc = prometheus.NewDesc("msghandler_fleet_configurations",
		"Different configurations among the running coordinators on this Redis.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c fleetCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		fleetDesc, fleetRestartsDesc, fleetLoopingDesc, fleetVersionsDesc, fleetConfigurationsDesc,
	} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c fleetCollector) Collect(ch chan<- prometheus.Metric) {
	fleet := c.count()
	gauge := func(desc *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels...)
	}
	for state, n := range fleet.States {
		gauge(fleetDesc, n, state)
	}
	gauge(fleetRestartsDesc, fleet.Restarts)
	gauge(fleetLoopingDesc, fleet.Looping)
	gauge(fleetVersionsDesc, fleet.Versions)
	gauge(fleetConfigurationsDesc, fleet.Configurations)
}

// Fleet exports the number of coordinators on this Redis.
func (m *Metrics) Fleet(count func() Fleet) { m.registry.MustRegister(fleetCollector{count}) }
