package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// flowStats are the rates of all coordinators in --output json. The names of its fields are part of the product.
type flowStats struct {
	Coordinators          int32   `json:"coordinators"`
	StoredPerSecond       float64 `json:"stored_per_second"`
	AcknowledgedPerSecond float64 `json:"acknowledged_per_second"`
	RejectedPerSecond     float64 `json:"rejected_per_second"`
	// The latencies are missing when no message was acknowledged.
	LatencyP50Seconds *float64 `json:"latency_p50_seconds,omitempty"`
	LatencyP99Seconds *float64 `json:"latency_p99_seconds,omitempty"`
}

// producerStats is a producer of stats in --output json.
type producerStats struct {
	Name                  string     `json:"name"`
	Coordinators          int32      `json:"coordinators"`
	CircuitOpenAt         int32      `json:"circuit_open_at"`
	Stored                int64      `json:"stored"`
	Acknowledged          int64      `json:"acknowledged"`
	StoredPerSecond       float64    `json:"stored_per_second"`
	AcknowledgedPerSecond float64    `json:"acknowledged_per_second"`
	RefusedPerSecond      float64    `json:"refused_per_second"`
	AnsweredAt            *time.Time `json:"answered_at,omitempty"`
	AnswerTookSeconds     *float64   `json:"answer_took_seconds,omitempty"`
	Verdict               string     `json:"verdict,omitempty"`
	FailedAt              *time.Time `json:"failed_at,omitempty"`
	Failure               string     `json:"failure,omitempty"`
}

// exchangeStats is an exchange of stats in --output json.
type exchangeStats struct {
	// Broker is empty for the default broker.
	Broker                string     `json:"broker"`
	Name                  string     `json:"name"`
	Acknowledged          int64      `json:"acknowledged"`
	Failed                int64      `json:"failed"`
	AcknowledgedPerSecond float64    `json:"acknowledged_per_second"`
	FailedPerSecond       float64    `json:"failed_per_second"`
	AcknowledgedAt        *time.Time `json:"acknowledged_at,omitempty"`
	FailedAt              *time.Time `json:"failed_at,omitempty"`
	Failure               string     `json:"failure,omitempty"`
}

func newFlowStats(f *adminv1.FlowStats) flowStats {
	return flowStats{
		f.GetCoordinators(), f.GetStoredPerSecond(), f.GetAcknowledgedPerSecond(), f.GetRejectedPerSecond(),
		secondsOf(f.GetLatencyP50()), secondsOf(f.GetLatencyP99()),
	}
}

func newProducerStats(all []*adminv1.ProducerStats) []producerStats {
	producers := make([]producerStats, len(all))
	for i, p := range all {
		producers[i] = producerStats{
			p.GetName(), p.GetCoordinators(), p.GetCircuitOpenAt(), p.GetStored(), p.GetAcknowledged(),
			p.GetStoredPerSecond(), p.GetAcknowledgedPerSecond(), p.GetRefusedPerSecond(),
			moment(p.GetAnswerTime()), secondsOf(p.GetAnswerTook()), verdictWord(p.GetVerdict()),
			moment(p.GetFailureTime()), p.GetFailure(),
		}
	}
	return producers
}

func newExchangeStats(all []*adminv1.ExchangeStats) []exchangeStats {
	exchanges := make([]exchangeStats, len(all))
	for i, e := range all {
		exchanges[i] = exchangeStats{
			e.GetBroker(), e.GetName(), e.GetAcknowledged(), e.GetFailed(), e.GetAcknowledgedPerSecond(),
			e.GetFailedPerSecond(), moment(e.GetAcknowledgeTime()), moment(e.GetFailureTime()), e.GetFailure(),
		}
	}
	return exchanges
}

// secondsOf is nil for no duration.
func secondsOf(d *durationpb.Duration) *float64 {
	if d == nil {
		return nil
	}
	seconds := d.AsDuration().Seconds()
	return &seconds
}

// verdictWord is empty for no verdict.
func verdictWord(v msghandlerv1.Verdict) string {
	if v == msghandlerv1.Verdict_VERDICT_UNSPECIFIED {
		return ""
	}
	return strings.TrimPrefix(v.String(), "VERDICT_")
}

func flowRows(f *adminv1.FlowStats) [][]string {
	latency := func(d *durationpb.Duration) string {
		if d == nil {
			return "-"
		}
		return d.AsDuration().Round(time.Millisecond).String()
	}
	return [][]string{
		{"IN/S", "OUT/S", "REJECTED/S", "P50", "P99", "OF COORDINATORS"},
		{
			perSecond(f.GetStoredPerSecond()), perSecond(f.GetAcknowledgedPerSecond()), perSecond(f.GetRejectedPerSecond()),
			latency(f.GetLatencyP50()), latency(f.GetLatencyP99()), strconv.Itoa(int(f.GetCoordinators())),
		},
	}
}

func producerRows(all []*adminv1.ProducerStats, now time.Time) [][]string {
	rows := [][]string{{"PRODUCER", "CIRCUIT", "IN/S", "OUT/S", "ANSWERED", "VERDICT", "LAST FAILURE"}}
	for _, p := range all {
		circuit := "closed"
		if p.GetCircuitOpenAt() > 0 {
			circuit = fmt.Sprintf("open at %d of %d", p.GetCircuitOpenAt(), p.GetCoordinators())
		}
		rows = append(rows, []string{
			p.GetName(), circuit, perSecond(p.GetStoredPerSecond()), perSecond(p.GetAcknowledgedPerSecond()),
			ageOf(p.GetAnswerTime(), now), cmp.Or(verdictWord(p.GetVerdict()), "-"),
			failureOf(ageOf(p.GetFailureTime(), now), p.GetFailure()),
		})
	}
	return rows
}

func exchangeRows(all []*adminv1.ExchangeStats, now time.Time) [][]string {
	rows := [][]string{{"EXCHANGE", "BROKER", "OUT/S", "ACKNOWLEDGED", "FAILED", "LAST FAILURE"}}
	for _, e := range all {
		rows = append(rows, []string{
			cmp.Or(e.GetName(), halfmsg.DefaultExchange), cmp.Or(e.GetBroker(), "(default)"),
			perSecond(e.GetAcknowledgedPerSecond()), strconv.FormatInt(e.GetAcknowledged(), 10),
			strconv.FormatInt(e.GetFailed(), 10),
			failureOf(ageOf(e.GetFailureTime(), now), e.GetFailure()),
		})
	}
	return rows
}

// perSecond writes a rate with three digits or all digits before the point.
func perSecond(rate float64) string {
	if rate > 0 && rate < 10 {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return strconv.FormatFloat(rate, 'f', 0, 64)
}

// failureOf writes when a call failed, and the cause of its error in short. Documents have the whole error.
func failureOf(ago, failure string) string {
	if failure == "" {
		return "-"
	}
	return ago + ": " + halfmsg.Cause(failure, halfmsg.Name{})
}
