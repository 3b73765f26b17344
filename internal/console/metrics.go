package console

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/msghandler/msghandler/internal/console/seen"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Metrics counts what this instance does. No label ever holds an id or a producer's name, so their number is bounded. It
// is safe for concurrent use. Its methods are the hooks of the loops and of the server; none of them blocks.
type Metrics struct {
	registry     *prometheus.Registry
	board        *seen.Board
	moves        *prometheus.CounterVec
	publishes    *prometheus.CounterVec
	publishTime  prometheus.Histogram
	confirms     *prometheus.CounterVec
	confirmTime  prometheus.Histogram
	deletions    *prometheus.CounterVec
	targetsAside prometheus.Gauge
	regressions  prometheus.Counter
	calls        *prometheus.CounterVec
	outcomes     *prometheus.CounterVec
	callTime     *prometheus.HistogramVec
}

// NewMetrics returns counters at zero in a registry of their own, with those of the process and of the Go runtime.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		board:    seen.New(),
		moves: counters("msghandler_moves_total",
			"Messages to which an event happened, and what became of that: stored, or why not.", "event", "fate"),
		publishes: counters("msghandler_publishes_total",
			"What the broker said of publishings, copies to the dead-letter exchange left out.", "outcome"),
		publishTime: seconds("msghandler_publish_batch_seconds", "How long batches took until the broker had answered."),
		confirms: counters("msghandler_confirms_total",
			"Messages that producers were asked about, and whether the producer was reached.", "result"),
		confirmTime: seconds("msghandler_confirm_call_seconds", "How long Confirm calls took, failed ones included."),
		deletions: counters("msghandler_marker_deletions_total",
			"Business markers: deleted, failed (tried again), or left to the producer's own clean-up.", "result"),
		targetsAside: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "msghandler_callback_targets_paused",
			Help: "Callback targets that are left alone for a while because they could not be reached.",
		}),
		regressions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "msghandler_store_regressions_total",
			Help: "Shards whose data went back in time: Redis has forgotten what it had acknowledged. Any is an emergency.",
		}),
		outcomes: counters("msghandler_outcomes_total",
			"Messages of calls that bring a whole batch, by method and gRPC code: the batch's own code says nothing of them.",
			"method", "code"),
		calls: counters("msghandler_calls_total", "Calls of the API by method and gRPC code.", "method", "code"),
		callTime: prometheus.NewHistogramVec(
			secondsOpts("msghandler_call_seconds", "How long calls of the API took, waits for a fate included."), []string{"method"}),
	}
	m.registry.MustRegister(
		m.calls, m.outcomes, m.callTime, m.moves, m.publishes, m.publishTime, m.confirms, m.confirmTime, m.deletions, m.targetsAside,
		m.regressions,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func seconds(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(secondsOpts(name, help))
}

// secondsOpts reach from a millisecond, which is a good answer, to half a minute, which is a lease.
func secondsOpts(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}
}

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Build sets the constant metric that names the build and the instance.
func (m *Metrics) Build(version, instance string) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "msghandler_build_info",
		Help:        "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": version, "instance_id": instance, "go_version": runtime.Version()},
	})
	info.Set(1)
	m.registry.MustRegister(info)
}

// Loop shows how a loop fares: passes gives how many it made, failures how many of the last ones failed in a row.
func (m *Metrics) Loop(name string, passes, failures func() float64) {
	labels := prometheus.Labels{"loop": name}
	m.registry.MustRegister(
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "msghandler_loop_passes_total", Help: "Passes of a loop, failed ones included.", ConstLabels: labels,
		}, passes),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "msghandler_loop_failures", Help: "Consecutive failed passes of a loop.", ConstLabels: labels,
		}, failures),
	)
}

// Called counts one call of the API.
func (m *Metrics) Called(method, code string, took time.Duration) {
	m.calls.WithLabelValues(method, code).Inc()
	m.callTime.WithLabelValues(method).Observe(took.Seconds())
	if method == "SendHalfMessage" && code == "OK" {
		m.board.Taken(1)
	}
}

// Answered counts one message of a call that brought a whole batch.
func (m *Metrics) Answered(method, code string) {
	m.outcomes.WithLabelValues(method, code).Inc()
	if method == "SendHalfMessages" && code == "OK" {
		m.board.Taken(1)
	}
}

// Settled counts messages to which an event happened.
func (m *Metrics) Settled(event halfmsg.Event, fate string, messages int) {
	m.moves.WithLabelValues(event.String(), fate).Add(float64(messages))
}

// Published counts what the broker said of the messages of a batch.
func (m *Metrics) Published(exchange string, outcome halfmsg.Outcome, messages int) {
	m.publishes.WithLabelValues(outcome.String()).Add(float64(messages))
	m.board.Published(exchange, outcome, messages)
}

// Failed notes why the broker did not take a message.
func (m *Metrics) Failed(exchange string, cause error) { m.board.Failed(exchange, cause) }

// PublishedBatch counts one batch that went to the broker.
func (m *Metrics) PublishedBatch(_ int, took time.Duration) { m.publishTime.Observe(took.Seconds()) }

// Acked hears of a message whose acknowledgement was stored just now.
func (m *Metrics) Acked(claim *halfmsg.Claim) { m.board.Acked(claim) }

// Confirmed counts one Confirm call.
func (m *Metrics) Confirmed(
	producer string, messages int, verdicts map[string]halfmsg.Verdict, took time.Duration, err error,
) {
	m.board.Confirmed(producer, verdicts, took, err)
	result := "answered"
	if err != nil {
		result = "unreachable"
	}
	m.confirms.WithLabelValues(result).Add(float64(messages))
	m.confirmTime.Observe(took.Seconds())
}

// Committed hears of a message whose verdict COMMITTED was stored just now.
func (m *Metrics) Committed(*halfmsg.Claim) {}

// Deleted counts the markers of one DeleteBusiness call.
func (m *Metrics) Deleted(_ string, markers int, _ time.Duration, err error) {
	result := "deleted"
	if err != nil {
		result = "failed"
	}
	m.deletions.WithLabelValues(result).Add(float64(markers))
}

// Littered counts markers that are left to the producer's own clean-up.
func (m *Metrics) Littered(_ string, markers int) {
	m.deletions.WithLabelValues("left").Add(float64(markers))
}

// Paused counts the callback targets that are left alone.
func (m *Metrics) Paused(producer string, paused bool) {
	m.board.Paused(producer, paused)
	if paused {
		m.targetsAside.Inc()
	} else {
		m.targetsAside.Dec()
	}
}

// Regressed counts shards of the store that went back in time.
func (m *Metrics) Regressed(shards int) { m.regressions.Add(float64(shards)) }
