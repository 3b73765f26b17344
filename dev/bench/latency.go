package bench

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latencies hold the times of messages.
type latencies struct {
	mu sync.Mutex
	// half and submit end with the acknowledgement: from when the half message was due, and from Submit. delivery is from
	// Submit to the consumer.
	half, submit, delivery *hdrhistogram.Histogram
}

// The histograms hold microseconds up to two minutes with three digits.
const longest, digits = 120_000_000, 3

func newLatencies() latencies {
	histogram := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, longest, digits) }
	return latencies{half: histogram(), submit: histogram(), delivery: histogram()}
}

func (l *latencies) acknowledged(due, submitted, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	record(l.half, at.Sub(due))
	record(l.submit, at.Sub(submitted))
}

// delivered times a delivery. deliver counts the delivery and returns the time of the Submit, zero for an untimed
// delivery. The lock spans both, so that a report never lacks the time of a counted delivery.
func (l *latencies) delivered(at time.Time, deliver func() (submitted time.Time)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if submitted := deliver(); !submitted.IsZero() {
		record(l.delivery, at.Sub(submitted))
	}
}

// into fills in the report's times. Deliveries may still come in.
func (l *latencies) into(report *Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	report.HalfToAck, report.SubmitToAck = latencyOf(l.half), latencyOf(l.submit)
	report.SubmitToDelivery = latencyOf(l.delivery)
}

func record(h *hdrhistogram.Histogram, took time.Duration) {
	_ = h.RecordValue(min(took.Microseconds(), longest)) // the only error is a value above the maximum, which min excludes
}

// Latency is a distribution of times, in milliseconds.
type Latency struct {
	P50  float64 `json:"p50_ms"`
	P90  float64 `json:"p90_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p99_9_ms"`
	Max  float64 `json:"max_ms"`
	N    int64   `json:"count"`
}

func latencyOf(h *hdrhistogram.Histogram) *Latency {
	if h.TotalCount() == 0 {
		return nil
	}
	at := func(percent float64) float64 { return float64(h.ValueAtPercentile(percent)) / 1000 }
	return &Latency{
		P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1000, N: h.TotalCount(),
	}
}
