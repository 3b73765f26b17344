package console

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// RPC counts a call of the API.
func (m *Metrics) RPC(method, code string, took time.Duration) {
	m.calls.WithLabelValues(method, code).Inc()
	m.countRefused(code)
	m.callTime.WithLabelValues(method).Observe(took.Seconds())
}

// BatchOutcome counts a message of a batch call.
func (m *Metrics) BatchOutcome(method, code string) {
	m.outcomes.WithLabelValues(method, code).Inc()
	m.countRefused(code)
}

// countRefused counts answers RESOURCE_EXHAUSTED.
func (m *Metrics) countRefused(code string) {
	if code == "ResourceExhausted" {
		m.refused.Add(1)
	}
}

// stored is the number of half messages stored for callers since the start.
func (m *Metrics) stored() float64 {
	return counterValue(m.calls.WithLabelValues("SendHalfMessage", "OK")) +
		counterValue(m.outcomes.WithLabelValues("SendHalfMessages", "OK"))
}

// counterValue is the current value of a counter.
func counterValue(c prometheus.Counter) float64 {
	var is dto.Metric
	_ = c.Write(&is) // a counter always can
	return is.GetCounter().GetValue()
}

// Settled counts messages to which an event happened.
func (m *Metrics) Settled(event halfmsg.Event, fate string, messages int) {
	m.moves.WithLabelValues(event.String(), fate).Add(float64(messages))
}

// Committed counts a message whose verdict COMMITTED was stored just now.
func (m *Metrics) Committed(claim *halfmsg.Claim) {
	m.confirmTries.Observe(float64(claim.ConfirmAttempts + 1))
	observe(m.sendableTime, since(claim.CreatedAt), claim.Trace)
}

// Acked counts messages whose acknowledgements were stored just now. Neighbours are mostly of one producer, and counted
// together.
func (m *Metrics) Acked(claims []halfmsg.Claim) {
	first := 0
	for i := range claims {
		m.acked(&claims[i])
		if i+1 == len(claims) || claims[i+1].Producer != claims[first].Producer {
			m.peers.Delivered(claims[first].Producer, int64(i+1-first))
			first = i + 1
		}
	}
}

func (m *Metrics) acked(claim *halfmsg.Claim) {
	m.publishTries.Observe(float64(claim.Copies + 1))
	if claim.Delay > 0 {
		return // the requested delay is not the coordinator's latency
	}
	took := since(claim.CreatedAt)
	m.peers.Latency.Observe(took)
	observe(m.ackedTime, took, claim.Trace)
	if !claim.SubmittedAt.IsZero() {
		observe(m.submittedTime, since(claim.SubmittedAt), claim.Trace)
	}
}

// observe adds the trace of a message as an exemplar, if the trace is sampled.
func observe(histogram prometheus.Observer, took time.Duration, traceparent string) {
	if parts := strings.Split(traceparent, "-"); len(parts) == 4 && parts[3] == "01" {
		histogram.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": parts[1]})
		return
	}
	histogram.Observe(took.Seconds())
}

// since is the time since then. The store's clock may run ahead of ours; a time is never negative.
func since(then time.Time) time.Duration { return max(0, time.Since(then)) }

// Published counts a broker's answers about messages to an exchange.
func (m *Metrics) Published(broker, exchange string, outcome halfmsg.Outcome, messages int) {
	m.peers.Published(broker, exchange, outcome, messages)
}

// Failed records why a broker did not accept a message.
func (m *Metrics) Failed(broker, exchange string, cause error) {
	m.peers.Failed(broker, exchange, cause)
}

// PublishedBatch counts messages of a batch that a broker has answered. Only acknowledgements say how fast a broker is.
func (m *Metrics) PublishedBatch(broker string, messages, acked int, took time.Duration) {
	if acked > 0 {
		m.acknowledgements(broker).Observe(took)
	}
	m.publishBatches.Observe(float64(messages))
	m.publishTime.Observe(took.Seconds())
}

// Confirmed counts a Confirm call and its verdicts.
func (m *Metrics) Confirmed(
	producer string, messages int, verdicts map[string]halfmsg.Verdict, took time.Duration, err error,
) {
	m.callbackTime.WithLabelValues("Confirm").Observe(took.Seconds())
	m.confirmBatches.Observe(float64(messages))
	m.peers.Confirmed(producer, messages, verdicts, took, err)
}

// Deleted counts the markers of a DeleteBusiness call.
func (m *Metrics) Deleted(_ string, markers int, took time.Duration, err error) {
	m.callbackTime.WithLabelValues("DeleteBusiness").Observe(took.Seconds())
	m.deleteBatches.Observe(float64(markers))
	result := "deleted"
	if err != nil {
		result = "failed"
	}
	m.deletions.WithLabelValues(result).Add(float64(markers))
}

// Asked counts what came of a question to a producer that attends.
func (m *Metrics) Asked(outcome string) { m.questions.WithLabelValues(outcome).Inc() }

// MarkersLeft counts markers left for the producer's clean-up.
func (m *Metrics) MarkersLeft(_ string, markers int) {
	m.deletions.WithLabelValues("left").Add(float64(markers))
}

// Paused counts the callback targets of a producer with an open circuit.
func (m *Metrics) Paused(producer string, paused bool) { m.peers.Paused(producer, paused) }

// ScriptRun counts a call of a script. messages is 0 for scripts without messages.
func (m *Metrics) ScriptRun(script string, messages int, took time.Duration) {
	m.scriptTime.WithLabelValues(script).Observe(took.Seconds())
	if messages > 0 {
		m.scripts.Observe(took)
		m.batches.WithLabelValues(script).Observe(float64(messages))
	}
}

// Regressed counts shards of the store that lost acknowledged writes.
func (m *Metrics) Regressed(shards int) { m.regressions.Add(float64(shards)) }

// Swept counts checked messages and repairs.
func (m *Metrics) Swept(checked, repaired int) {
	m.sweeps.Add(float64(checked))
	m.repairs.Add(float64(repaired))
}

// Found records how many settings of the store endanger messages.
func (m *Metrics) Found(warnings, refused, allowed int) {
	m.findings.WithLabelValues("warning").Set(float64(warnings))
	m.findings.WithLabelValues("refuse").Set(float64(refused))
	m.findings.WithLabelValues("allowed").Set(float64(allowed))
}

// HTTPRefused counts an HTTP request refused before it was a call, by the reason of its answer.
func (m *Metrics) HTTPRefused(reason string) { m.http.WithLabelValues(strings.ToLower(reason)).Inc() }

// RequestRefused counts a request refused before it was read completely, by reason.
func (m *Metrics) RequestRefused(reason string) { m.requests.WithLabelValues(reason).Inc() }

// ConnectionRefused counts a connection that was closed at once, by reason.
func (m *Metrics) ConnectionRefused(listener, reason string) {
	m.connections.WithLabelValues(listener, reason).Inc()
}

// Waiting records the number of overdue sendable messages.
func (m *Metrics) Waiting(messages int64) { m.backlog.Set(float64(messages)) }

// Overdue records for how long the worst message is overdue for its verdict.
func (m *Metrics) Overdue(overdue time.Duration) { m.longestOverdue.Store(int64(overdue)) }

// overdueFor is the latest value of Overdue.
func (m *Metrics) overdueFor() time.Duration { return time.Duration(m.longestOverdue.Load()) }

// Noted counts events for operators.
func (m *Metrics) Noted(kind string, events int) { m.events.WithLabelValues(kind).Add(float64(events)) }

// Posted counts a post to the webhook.
func (m *Metrics) Posted(result string) { m.posts.WithLabelValues(result).Inc() }
