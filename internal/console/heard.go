package console

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Called counts one call of the API.
func (m *Metrics) Called(method, code string, took time.Duration) {
	m.calls.WithLabelValues(method, code).Inc()
	m.judge(code)
	m.callTime.WithLabelValues(method).Observe(took.Seconds())
}

// Answered counts one message of a call that brought a whole batch.
func (m *Metrics) Answered(method, code string) {
	m.outcomes.WithLabelValues(method, code).Inc()
	m.judge(code)
}

// judge counts what was turned away because something is full.
func (m *Metrics) judge(code string) {
	if code == "ResourceExhausted" {
		m.turnedAway.Add(1)
	}
}

// taken is how many half messages were stored for callers since the start.
func (m *Metrics) taken() float64 {
	return counted(m.calls.WithLabelValues("SendHalfMessage", "OK")) +
		counted(m.outcomes.WithLabelValues("SendHalfMessages", "OK"))
}

// counted is what a counter stands at.
func counted(c prometheus.Counter) float64 {
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

// Acked counts a message whose acknowledgement was stored just now.
func (m *Metrics) Acked(claim *halfmsg.Claim) {
	m.publishTries.Observe(float64(claim.Copies + 1))
	if claim.Delay > 0 {
		return // how long its sender asked it to wait says nothing of us
	}
	took := since(claim.CreatedAt)
	m.board.Latency.Observe(took)
	observe(m.ackedTime, took, claim.Trace)
	if !claim.SubmittedAt.IsZero() {
		observe(m.submittedTime, since(claim.SubmittedAt), claim.Trace)
	}
}

// observe leaves the trace of a message as an exemplar, where it has one that is sampled.
func observe(histogram prometheus.Observer, took time.Duration, traceparent string) {
	if parts := strings.Split(traceparent, "-"); len(parts) == 4 && parts[3] == "01" {
		histogram.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": parts[1]})
		return
	}
	histogram.Observe(took.Seconds())
}

// since is the time since then. The store's clock may run ahead of ours; a time is never negative.
func since(then time.Time) time.Duration { return max(0, time.Since(then)) }

// Published counts what the broker said of messages to an exchange.
func (m *Metrics) Published(exchange string, outcome halfmsg.Outcome, messages int) {
	m.board.Published(exchange, outcome, messages)
}

// Failed notes why the broker did not take a message.
func (m *Metrics) Failed(exchange string, cause error) { m.board.Failed(exchange, cause) }

// PublishedBatch counts one batch that went to the broker.
func (m *Metrics) PublishedBatch(messages int, took time.Duration) {
	m.publishBatches.Observe(float64(messages))
	m.publishTime.Observe(took.Seconds())
}

// Confirmed counts one Confirm call and the verdicts that it brought.
func (m *Metrics) Confirmed(
	producer string, messages int, verdicts map[string]halfmsg.Verdict, took time.Duration, err error,
) {
	m.callbackTime.WithLabelValues("Confirm").Observe(took.Seconds())
	m.confirmBatches.Observe(float64(messages))
	m.board.Confirmed(producer, messages, verdicts, took, err)
}

// Deleted counts the markers of one DeleteBusiness call.
func (m *Metrics) Deleted(_ string, markers int, took time.Duration, err error) {
	m.callbackTime.WithLabelValues("DeleteBusiness").Observe(took.Seconds())
	m.deleteBatches.Observe(float64(markers))
	result := "deleted"
	if err != nil {
		result = "failed"
	}
	m.deletions.WithLabelValues(result).Add(float64(markers))
}

// MarkersLeft counts markers that are left to the producer's own clean-up.
func (m *Metrics) MarkersLeft(_ string, markers int) {
	m.deletions.WithLabelValues("left").Add(float64(markers))
}

// Paused counts the callback targets of a producer that are left alone.
func (m *Metrics) Paused(producer string, paused bool) { m.board.Paused(producer, paused) }

// Ran counts one call of a script. messages is 0 where it is not about messages.
func (m *Metrics) Ran(script string, messages int, took time.Duration) {
	m.scriptTime.WithLabelValues(script).Observe(took.Seconds())
	if messages > 0 {
		m.batches.WithLabelValues(script).Observe(float64(messages))
	}
}

// Regressed counts shards of the store that went back in time.
func (m *Metrics) Regressed(shards int) { m.regressions.Add(float64(shards)) }

// Swept counts messages that were checked, and repairs that were made.
func (m *Metrics) Swept(checked, repaired int) {
	m.sweeps.Add(float64(checked))
	m.repairs.Add(float64(repaired))
}

// Found notes how many settings of the store endanger messages.
func (m *Metrics) Found(warnings, refused, allowed int) {
	m.findings.WithLabelValues("warning").Set(float64(warnings))
	m.findings.WithLabelValues("refuse").Set(float64(refused))
	m.findings.WithLabelValues("allowed").Set(float64(allowed))
}

// RequestRefused notes a request that was refused before it was read whole, and why.
func (m *Metrics) RequestRefused(reason string) { m.requests.WithLabelValues(reason).Inc() }

// ConnectionRefused notes a connection that was closed at once, and why.
func (m *Metrics) ConnectionRefused(listener, reason string) {
	m.connections.WithLabelValues(listener, reason).Inc()
}

// Waiting notes how many messages could be sent and are not, for longer than they should.
func (m *Metrics) Waiting(messages int64) { m.backlog.Set(float64(messages)) }

// Undecided notes for how long the worst message is overdue for its verdict.
func (m *Metrics) Undecided(overdue time.Duration) { m.undecided.Store(int64(overdue)) }

// overdue is what Undecided has noted last.
func (m *Metrics) overdue() time.Duration { return time.Duration(m.undecided.Load()) }

// Noted counts events that people should know of.
func (m *Metrics) Noted(kind string, events int) { m.events.WithLabelValues(kind).Add(float64(events)) }

// Posted counts one post to the webhook.
func (m *Metrics) Posted(result string) { m.posts.WithLabelValues(result).Inc() }
