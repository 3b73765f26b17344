package console

import (
	"cmp"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
)

// Metrics counts the work of this instance. No label ever holds an id; producers and exchanges are named up to a bound
// (package peerstats), so the number of series is bounded. Metrics is safe for concurrent use. Its methods (record.go)
// are the hooks of the loops, the store and the server, and never block.
type Metrics struct {
	registry *prometheus.Registry
	peers    *peerstats.Registry
	refusals peerstats.Refusals
	meter    peerstats.Meter
	unstored peerstats.Refusals

	moves          *prometheus.CounterVec
	sendableTime   prometheus.Observer
	ackedTime      prometheus.Observer
	submittedTime  prometheus.Observer
	confirmTries   prometheus.Observer
	publishTries   prometheus.Observer
	batches        *prometheus.HistogramVec
	publishTime    prometheus.Observer
	callbackTime   *prometheus.HistogramVec
	deletions      *prometheus.CounterVec
	questions      *prometheus.CounterVec
	regressions    prometheus.Counter
	findings       *prometheus.GaugeVec
	backlog        prometheus.Gauge
	sweeps         prometheus.Counter
	repairs        prometheus.Counter
	scriptTime     *prometheus.HistogramVec
	calls          *prometheus.CounterVec
	outcomes       *prometheus.CounterVec
	callTime       *prometheus.HistogramVec
	requests       *prometheus.CounterVec
	http           *prometheus.CounterVec
	connections    *prometheus.CounterVec
	events         *prometheus.CounterVec
	posts          *prometheus.CounterVec
	refusedCalls   *prometheus.CounterVec
	auditDropped   prometheus.Counter
	confirmBatches prometheus.Observer
	publishBatches prometheus.Observer
	deleteBatches  prometheus.Observer
	reloadFailed   prometheus.Gauge
	configRead     prometheus.Gauge
	// refused counts calls, and messages of batches, with the answer RESOURCE_EXHAUSTED.
	refused atomic.Int64
	// scripts counts how long scripts about messages took, and acks has a *peerstats.Latency for each broker.
	scripts peerstats.Latency
	acks    sync.Map
	// longestOverdue is for how long the worst message is overdue for its verdict, in nanoseconds.
	longestOverdue atomic.Int64
}

// NewMetrics returns counters at zero in a separate registry, with the metrics of the process and of the Go runtime.
func NewMetrics() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), peers: peerstats.New()}
	m.countMessages()
	m.countCallbacks()
	m.countStore()
	m.countCalls()
	m.countEvents()
	m.countAudit()
	m.reloadFailed, m.configRead = newReloads()
	m.beginAtZero()
	m.meter.Measure(m.snapshot(time.Now())) // rates count from the start on
	m.registry.MustRegister(peerCollector{m.peers}, refusalCollector{refusalsDesc, &m.refusals},
		refusalCollector{unstoredDesc, &m.unstored}, m.reloadFailed, m.configRead,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// countMessages registers the metrics of outcomes and latencies of messages.
func (m *Metrics) countMessages() {
	m.moves = m.counters("msghandler_moves_total",
		"Events of messages, by result: stored, or why not.", "event", "fate")
	m.sendableTime = m.seconds("msghandler_sendable_seconds",
		"Time from SendHalfMessage, by Redis's clock, until the verdict COMMITTED was stored, by this instance's.")
	m.ackedTime = m.seconds(
		"msghandler_acked_seconds",
		"Time from SendHalfMessage, by Redis's clock, until the broker's acknowledgement was stored; delayed messages left "+
			"out.",
	)
	m.submittedTime = m.seconds(
		"msghandler_submit_acked_seconds",
		"Time from Submit until the broker's acknowledgement was stored, where one instance did all of it; delayed "+
			"messages left out.",
	)
	attempts := m.counts(
		"msghandler_attempts",
		"Answers that messages needed until the verdict (side confirm), and copies until the acknowledgement (side publish).",
		"side",
	)
	m.confirmTries, m.publishTries = attempts.WithLabelValues("confirm"), attempts.WithLabelValues("publish")
	m.batches = m.counts("msghandler_batch_messages", "Messages in a batch, by step.", "step")
	m.publishBatches = m.batches.WithLabelValues("publish")
	m.publishTime = m.seconds("msghandler_publish_batch_seconds", "How long batches took until the broker had answered.")
}

// countCallbacks registers the metrics of calls to producers.
func (m *Metrics) countCallbacks() {
	m.callbackTime = m.secondsBy("msghandler_callback_seconds",
		"How long calls to producers took, failed ones included.", "method")
	m.deletions = m.counters("msghandler_marker_deletions_total",
		"Business markers: deleted, failed (retried), or left to the producer's own clean-up.", "result")
	m.questions = m.counters(
		"msghandler_attend_questions_total",
		"Questions to producers that attend: answered, failed by all replicas asked, unanswered in time, nobody attended; "+
			"and answers that came too late.",
		"outcome",
	)
	m.confirmBatches, m.deleteBatches = m.batches.WithLabelValues("confirm"), m.batches.WithLabelValues("delete")
}

// countStore registers the metrics of Redis.
func (m *Metrics) countStore() {
	m.scriptTime = m.secondsBy("msghandler_script_seconds",
		"How long one call of a script took for all shards that it went to, failed ones included.", "script")
	m.regressions = m.counter("msghandler_store_regressions_total",
		"Shards with a data rollback: acknowledged writes are missing. Any is an emergency.")
	m.findings = m.gauges(
		"msghandler_store_findings",
		"Settings of Redis that endanger messages: a warning; refuse, with which a coordinator does not start; or allowed, "+
			"by redis.allow_unsafe.",
		"severity",
	)
	m.sweeps = m.counter("msghandler_sweep_messages_total", "Messages whose records and indexes were compared.")
	m.repairs = m.counter("msghandler_sweep_repairs_total", "Records and indexes that did not match and were repaired.")
	m.backlog = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "msghandler_sendable_backlog_messages",
		Help: "SENDABLE messages older than a minute that wait neither for their delay, nor for their next try, nor for a " +
			"broker that is away.",
	})
	m.register(m.backlog)
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "msghandler_undecided_seconds",
		Help: "For how long the verdict of the worst PENDING message is overdue, counted from the end of its " +
			"confirm_after. Messages younger than ten minutes are not counted; 0 without overdue messages.",
	}, func() float64 { return m.overdueFor().Seconds() }))
	m.Found(0, 0, 0)
}

// countCalls registers the metrics of the API.
func (m *Metrics) countCalls() {
	m.calls = m.counters("msghandler_calls_total", "Calls of the API by method and gRPC code.", "method", "code")
	m.outcomes = m.counters("msghandler_outcomes_total",
		"Messages of calls that bring a whole batch, by method and gRPC code: the batch's own code says nothing of them.",
		"method", "code")
	m.requests = m.counters(
		"msghandler_requests_refused_total",
		"Requests of the API that were refused before they were read whole, which no call counts: they are compressed, or "+
			"there is no "+
			"room for their bytes, or too many calls have begun, or too many streams that need no identity are open.",
		"reason",
	)
	m.http = m.counters("msghandler_http_refused_total",
		"HTTP requests to the API that were refused before they were calls, by the reason of the answer.", "reason")
	m.connections = m.counters(
		"msghandler_connections_refused_total",
		"Connections of clients that were closed at once, as there were too many: in all (total), or from one address.",
		"listener",
		"reason",
	)
	m.callTime = m.secondsBy("msghandler_call_seconds", "How long calls of the API took, waits for a fate included.",
		"method")
}

// countAudit registers the metrics of the audit trail.
func (m *Metrics) countAudit() {
	m.refusedCalls = m.counters("msghandler_refused_calls_total",
		"Calls that were refused because of their caller, by what the caller lacks: identity (a valid credential), role "+
			"(of an operator), producer (it may not call as the producer) or policy (of the producer).", "reason")
	for _, kind := range []audit.Refusal{audit.ByIdentity, audit.ByRole, audit.ByProducer, audit.ByPolicy} {
		m.RefusedCalls(kind, 0)
	}
	m.auditDropped = m.counter("msghandler_audit_dropped_total",
		"Audit records that Redis has not, because it took none for too long. The log has them.")
}

// RefusedCalls implements audit.Metrics.
func (m *Metrics) RefusedCalls(kind audit.Refusal, calls int64) {
	m.refusedCalls.WithLabelValues(string(kind)).Add(float64(calls))
}

// AuditDropped implements audit.Metrics.
func (m *Metrics) AuditDropped(records int) { m.auditDropped.Add(float64(records)) }

// countEvents registers the metrics of events, and of broken assertions.
func (m *Metrics) countEvents() {
	m.events = m.counters("msghandler_events_total", "Events for operators, by kind.", "kind")
	m.posts = m.counters("msghandler_webhook_posts_total",
		"Posts to the webhook: ok, failed (retried), or given_up.", "result")
	m.register(assertionCollector{})
}

// beginAtZero creates the series of alerts: Prometheus sees no increase in a series that begins with its first event.
func (m *Metrics) beginAtZero() {
	for _, event := range halfmsg.Events() {
		if event.NeedsLease() {
			m.Settled(event, "lease_lost", 0)
		}
	}
	m.Settled(halfmsg.EventCommitted, "contradiction", 0)
	m.Settled(halfmsg.EventRolledBack, "contradiction", 0)
	for _, result := range []string{"deleted", "failed", "left"} {
		m.deletions.WithLabelValues(result)
	}
	for _, outcome := range []string{"answered", "failed", "unanswered", "nobody", "late"} {
		m.questions.WithLabelValues(outcome)
	}
	for _, result := range []string{"ok", "failed", "given_up"} {
		m.posts.WithLabelValues(result)
	}
	for _, listener := range []string{"grpc", "http"} {
		m.connections.WithLabelValues(listener, "total")
		m.connections.WithLabelValues(listener, "address")
	}
	for _, reason := range []string{"compressed", "bytes", "calls"} {
		m.requests.WithLabelValues(reason)
	}
	m.calls.WithLabelValues("Submit", "FailedPrecondition")
	m.outcomes.WithLabelValues("SubmitAll", "FailedPrecondition")
	for _, code := range []string{"ResourceExhausted", "Unavailable"} {
		m.calls.WithLabelValues("SendHalfMessage", code)
		m.outcomes.WithLabelValues("SendHalfMessages", code)
	}
}

// Registerer takes the metrics of parts that count for themselves.
func (m *Metrics) Registerer() prometheus.Registerer { return m.registry }

// handler serves OpenMetrics on request, because only OpenMetrics has exemplars.
func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, EnableOpenMetrics: true})
}

// Build sets the constant metric with the build and the instance.
func (m *Metrics) Build(version, instance string) {
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "msghandler_build_info",
		Help:        "Always 1; the labels have the version and the instance.",
		ConstLabels: prometheus.Labels{"version": version, "instance_id": instance, "go_version": runtime.Version()},
	}, func() float64 { return 1 }))
	m.register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "msghandler_panics_total",
		Help: "Panics that ended a call, a pass or a batch, whose messages keep their state: a defect of msghandler to " +
			"report with the stack in the log.",
	}, func() float64 { return float64(lifecycle.Panics()) }))
}

// Loop exports the state of a loop: passes is the number of passes, failures the number of consecutive failures.
func (m *Metrics) Loop(name string, passes, failures func() float64) {
	labels := prometheus.Labels{"loop": name}
	m.register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "msghandler_loop_passes_total", Help: "Passes of a loop, failed ones included.", ConstLabels: labels,
	}, passes))
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "msghandler_loop_failures", Help: "Consecutive failed passes of a loop.", ConstLabels: labels,
	}, failures))
}

// Queue shows how much waits in a queue of this process.
func (m *Metrics) Queue(name string, waiting func() int) {
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "msghandler_queue_items", Help: "Items waiting in this process, by queue.",
		ConstLabels: prometheus.Labels{"queue": name},
	}, func() float64 { return float64(waiting()) }))
}

// Connections exports the number of open connections of a listener, and the limit.
func (m *Metrics) Connections(listener string, open func() int, most int) {
	labels := prometheus.Labels{"listener": listener}
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "msghandler_connections", Help: "Connections of clients that are open.", ConstLabels: labels,
	}, func() float64 { return float64(open()) }))
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "msghandler_connections_limit", Help: "Connections of clients that may be open.", ConstLabels: labels,
	}, func() float64 { return float64(most) }))
}

// Attending exports the number of streams of producers that attend, and the limit.
func (m *Metrics) Attending(streams func() int, most int) {
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "msghandler_attending_streams", Help: "Streams of producers that attend here.",
	}, func() float64 { return float64(streams()) }))
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "msghandler_attending_streams_limit", Help: "Streams of producers that may attend here.",
	}, func() float64 { return float64(most) }))
}

// Broker shows whether a broker takes messages; an empty name is the default broker.
func (m *Metrics) Broker(name string, ready func() error) {
	m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "msghandler_broker_up", Help: "Whether the broker accepts messages.",
		ConstLabels: prometheus.Labels{"broker": cmp.Or(name, unnamed)},
	}, func() float64 {
		if ready() != nil {
			return 0
		}
		return 1
	}))
}

// Duplicates exports how many messages a broker had already when they were published; an empty name is the default
// broker.
func (m *Metrics) Duplicates(broker string, had func() int64) {
	m.register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "msghandler_publish_duplicates_total",
		Help: "Publishes of messages that NATS JetStream had already: repeats after a lost acknowledgement. " +
			"They are done, and stored once.",
		ConstLabels: prometheus.Labels{"broker": cmp.Or(broker, unnamed)},
	}, func() float64 { return float64(had()) }))
}

// Watched exports the number of messages in the watched queues of the broker.
func (m *Metrics) Watched(depths func() map[string]int) {
	m.registry.MustRegister(queueCollector{watchedDesc, depths})
}

// queueCollector is a prometheus.Collector of the watched queues.
type queueCollector struct {
	desc   *prometheus.Desc
	depths func() map[string]int
}

var watchedDesc = prometheus.NewDesc("msghandler_watched_queue_messages",
	"Messages in a watched queue of the broker.", []string{"queue"}, nil)

// Describe implements prometheus.Collector.
func (w queueCollector) Describe(ch chan<- *prometheus.Desc) { ch <- w.desc }

// Collect implements prometheus.Collector.
func (w queueCollector) Collect(ch chan<- prometheus.Metric) {
	for queue, depth := range w.depths() {
		ch <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, float64(depth), queue)
	}
}
