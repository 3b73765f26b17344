// Package metrics tells Prometheus what consumers do.
//
//	watched, err := metrics.New(prometheus.DefaultRegisterer)
//	c, err := consumer.New(consumer.Config{Observer: watched, ...})
//
// One serves all consumers of a process. Labels are queues and results, never ids. How deep queues are is RabbitMQ's own
// to tell, by its plugin rabbitmq_prometheus.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/consumer"
)

// Observer is a consumer.Observer that counts.
type Observer struct {
	deliveries *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	inFlight   *prometheus.GaugeVec
}

var _ consumer.Observer = (*Observer)(nil)

// New registers the metrics. It fails when they are registered already.
func New(to prometheus.Registerer) (*Observer, error) {
	o := &Observer{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "msghandler_consumer_deliveries_total",
			Help: "Deliveries by what became of them: effect, duplicate, retried or dead.",
		}, []string{"queue", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "msghandler_consumer_handler_seconds", Help: "How long the handler took for a delivery.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8), // 1 ms to 16 s
		}, []string{"queue"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "msghandler_consumer_in_flight",
			Help: "Deliveries in this process that the broker was not told about, those that wait in it for a retry included.",
		}, []string{"queue"}),
	}
	for _, c := range []prometheus.Collector{o.deliveries, o.seconds, o.inFlight} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Begun implements consumer.Observer.
func (o *Observer) Begun(queue string) { o.inFlight.WithLabelValues(queue).Inc() }

// Ended implements consumer.Observer.
func (o *Observer) Ended(queue string, result consumer.Result, took time.Duration) {
	o.inFlight.WithLabelValues(queue).Dec()
	o.deliveries.WithLabelValues(queue, string(result)).Inc()
	o.seconds.WithLabelValues(queue).Observe(took.Seconds())
}
