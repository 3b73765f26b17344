package console

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/cause"
)

// problemCollector is a prometheus.Collector of the problems that a coordinator sees itself, so that an alert can name
// the finding that the console and the doctor name.
type problemCollector struct{ console *Console }

var problemDesc = prometheus.NewDesc(
	"msghandler_problem",
	"1 for each problem that this coordinator sees now. The subject is the failing check of /readyz, the producer or "+
		"exchange that fails, or what is slow: a check, a producer, or the process; empty for findings of no part.",
	[]string{"finding", "subject"}, nil,
)

// Describe implements prometheus.Collector.
func (p problemCollector) Describe(ch chan<- *prometheus.Desc) { ch <- problemDesc }

// Collect implements prometheus.Collector. Producers and exchanges are bounded as the entries of the registry are.
func (p problemCollector) Collect(ch chan<- prometheus.Metric) {
	for problem := range p.current(context.Background()) {
		ch <- prometheus.MustNewConstMetric(problemDesc, prometheus.GaugeValue, 1, problem.finding, problem.subject)
	}
}

type labelledProblem struct{ finding, subject string }

func (p problemCollector) current(ctx context.Context) map[labelledProblem]bool {
	now, all := time.Now(), map[labelledProblem]bool{}
	for _, one := range p.console.check(ctx).Checks {
		if one.Cause != nil {
			all[labelledProblem{one.Cause.Name, one.Name}] = true
		}
	}
	if p.console.config.Findings != nil {
		for _, f := range p.console.config.Findings() {
			// What other coordinators alone see is in their metrics.
			where := f.GetCoordinators()
			if len(where) == 0 || slices.Contains(where, p.console.config.Instance) {
				all[labelledProblem{f.GetName(), f.GetSubject()}] = true
			}
		}
	}
	for _, producer := range p.console.config.Metrics.peers.Producers() {
		if producer.Paused > 0 {
			all[labelledProblem{cause.OfCall(producer.Failure).Name, producer.Name}] = true
		}
	}
	for _, e := range p.console.config.Metrics.peers.Exchanges() {
		if e.Down(now) {
			all[labelledProblem{cause.OfRefusal(e.Failure, e.Name, "").Name, cmp.Or(e.Name, unnamed)}] = true
		}
	}
	return all
}
