// Package consumermetrics exports what consumers do to Prometheus.
//
//	watched, err := consumermetrics.New(prometheus.DefaultRegisterer)
//	c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{Observer: watched, ...})
//
// An Observer serves all consumers of a process. Labels are queues and results, never ids. On RabbitMQ and NATS every
// process that consumes a queue reports the depth of the queue, so take the maximum over instances, never the sum. On
// Kafka each process reports the depth of its own partitions.
package consumermetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/consumer"
)

// Observer is a consumer.Observer that counts for Prometheus.
type Observer struct {
	deliveries *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	inFlight   *prometheus.GaugeVec
	depth      *prometheus.GaugeVec
	dead       *prometheus.GaugeVec
}

var _ consumer.Observer = (*Observer)(nil)

// New registers the metrics. New fails if the metrics are registered already.
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
			Help: "Deliveries in this process without a result for the broker, with those that wait here for a retry.",
		}, []string{"queue"}),
		depth: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "msghandler_consumer_queue_messages",
			Help: "Messages that wait in the queue, without those that a consumer holds.",
		}, []string{"queue"}),
		dead: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "msghandler_consumer_dead_letters",
			Help: "Messages in the dead-letter queue of the queue. A shared dead-letter queue is named itself.",
		}, []string{"queue"}),
	}
	for _, c := range []prometheus.Collector{o.deliveries, o.seconds, o.inFlight, o.depth, o.dead} {
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

// Depth implements consumer.Observer.
func (o *Observer) Depth(queue string, messages int) {
	o.depth.WithLabelValues(queue).Set(float64(messages))
}

// DeadLetters implements consumer.Observer.
func (o *Observer) DeadLetters(queue string, messages int) {
	o.dead.WithLabelValues(queue).Set(float64(messages))
}
