// Package outboxmetrics tells Prometheus what a relay does and how its local message table stands.
//
//	watched, err := outboxmetrics.New(prometheus.DefaultRegisterer, "orders")
//	relay, err := outbox.New(outbox.Config{Observer: watched, ...})
//
// One serves all relays of a producer in a process. Every instance of the producer counts the same table, so take the
// maximum of the gauges over instances, never their sum. Relays that divide shards count their own: take the sum.
package outboxmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

// Observer is an outbox.Observer that counts for Prometheus.
type Observer struct {
	relayed  *prometheus.CounterVec
	failed   prometheus.Counter
	messages *prometheus.GaugeVec
	oldest   prometheus.Gauge
}

var _ outbox.Observer = (*Observer)(nil)

// New registers the metrics of a producer's table. New fails if the metrics are registered already.
func New(to prometheus.Registerer, producer string) (*Observer, error) {
	of := prometheus.Labels{"producer": producer}
	o := &Observer{
		relayed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "msghandler_outbox_relayed_total", ConstLabels: of,
			Help: "Messages that this process offered, by their fate: sent, handed, refused, unreached or early.",
		}, []string{"fate"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "msghandler_outbox_failed_total", ConstLabels: of,
			Help: "Committed messages that were refused up to the limit; not sent until an operator retries them.",
		}),
		messages: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "msghandler_outbox_messages", ConstLabels: of,
			Help: "Unsent messages in the table by state: waiting, handed or failed.",
		}, []string{"state"}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "msghandler_outbox_oldest_seconds", ConstLabels: of,
			Help: "Age of the oldest message that waits to be sent; 0 when none does.",
		}),
	}
	for _, c := range []prometheus.Collector{o.relayed, o.failed, o.messages, o.oldest} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Relayed implements outbox.Observer.
func (o *Observer) Relayed(fate outbox.Fate, messages int) {
	o.relayed.WithLabelValues(fate.String()).Add(float64(messages))
}

// Failed implements outbox.Observer.
func (o *Observer) Failed(ids []string) { o.failed.Add(float64(len(ids))) }

// Counted implements outbox.Observer.
func (o *Observer) Counted(b sql.Backlog) {
	for state, n := range map[string]int64{"waiting": b.Waiting, "handed": b.Handed, "failed": b.Failed} {
		o.messages.WithLabelValues(state).Set(float64(n))
	}
	o.oldest.Set(b.Oldest.Seconds())
}
