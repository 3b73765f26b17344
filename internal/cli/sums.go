package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// flowStats are the rates of all coordinators in --output json. The names of its fields are part of the product.
type flowStats struct {
	Coordinators          int32   `json:"coordinators"`
	StoredPerSecond       float64 `json:"stored_per_second"`
	AcknowledgedPerSecond float64 `json:"acknowledged_per_second"`
	RefusedPerSecond      float64 `json:"refused_per_second"`
	// The latencies are missing when no message was acknowledged.
	LatencyP50Seconds *float64 `json:"latency_p50_seconds,omitempty"`
	LatencyP99Seconds *float64 `json:"latency_p99_seconds,omitempty"`
}

// producerStats is a producer of stats in --output json.
type producerStats struct {
	Name                  string     `json:"name"`
	Coordinators          int32      `json:"coordinators"`
	OpenCircuits          int32      `json:"open_circuits"`
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
	Refused               int64      `json:"refused"`
	AcknowledgedPerSecond float64    `json:"acknowledged_per_second"`
	RefusedPerSecond      float64    `json:"refused_per_second"`
	AcknowledgedAt        *time.Time `json:"acknowledged_at,omitempty"`
	FailedAt              *time.Time `json:"failed_at,omitempty"`
	Failure               string     `json:"failure,omitempty"`
}

func newFlowStats(f *adminv1.FlowStats) flowStats {
	return flowStats{
		f.GetCoordinatorCount(), f.GetStoredPerSecond(), f.GetAcknowledgedPerSecond(), f.GetRefusedPerSecond(),
		secondsOf(f.GetLatencyP50()), secondsOf(f.GetLatencyP99()),
	}
}

func newProducerStats(all []*adminv1.ProducerStats) []producerStats {
	producers := make([]producerStats, len(all))
	for i, p := range all {
		producers[i] = producerStats{
			p.GetName(), p.GetCoordinatorCount(), p.GetOpenCircuits(), p.GetStoredTotal(), p.GetAcknowledgedTotal(),
			p.GetStoredPerSecond(), p.GetAcknowledgedPerSecond(), p.GetRefusedPerSecond(),
			moment(p.GetLastAnswerTime()), secondsOf(p.GetLastAnswerLatency()), verdictWord(p.GetLastVerdict()),
			moment(p.GetLastFailureTime()), p.GetLastFailure(),
		}
	}
	return producers
}

func newExchangeStats(all []*adminv1.ExchangeStats) []exchangeStats {
	exchanges := make([]exchangeStats, len(all))
	for i, e := range all {
		exchanges[i] = exchangeStats{
			e.GetBroker(), e.GetName(), e.GetAcknowledgedTotal(), e.GetRefusedTotal(), e.GetAcknowledgedPerSecond(),
			e.GetRefusedPerSecond(), moment(e.GetLastAcknowledgeTime()), moment(e.GetLastFailureTime()), e.GetLastFailure(),
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

// latencyOf is "-" for no latency.
func latencyOf(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return operate.Duration(d.AsDuration())
}

func flowRows(f *adminv1.FlowStats) [][]string {
	return [][]string{
		{"IN/S", "OUT/S", "REFUSED/S", "P50", "P99", "OF COORDINATORS"},
		{
			perSecond(f.GetStoredPerSecond()), perSecond(f.GetAcknowledgedPerSecond()), perSecond(f.GetRefusedPerSecond()),
			latencyOf(f.GetLatencyP50()), latencyOf(f.GetLatencyP99()), strconv.Itoa(int(f.GetCoordinatorCount())),
		},
	}
}

func producerRows(all []*adminv1.ProducerStats, now time.Time) [][]string {
	rows := [][]string{{"PRODUCER", "CIRCUIT", "IN/S", "OUT/S", "ANSWERED", "VERDICT", "LAST FAILURE"}}
	for _, p := range all {
		circuit := "closed"
		if p.GetOpenCircuits() > 0 {
			circuit = fmt.Sprintf("open at %d of %d", p.GetOpenCircuits(), p.GetCoordinatorCount())
		}
		rows = append(rows, []string{
			p.GetName(), circuit, perSecond(p.GetStoredPerSecond()), perSecond(p.GetAcknowledgedPerSecond()),
			ageOf(p.GetLastAnswerTime(), now), cmp.Or(verdictWord(p.GetLastVerdict()), "-"),
			failureOf(ageOf(p.GetLastFailureTime(), now), p.GetLastFailure()),
		})
	}
	return rows
}

func exchangeRows(all []*adminv1.ExchangeStats, now time.Time) [][]string {
	rows := [][]string{{"EXCHANGE", "BROKER", "OUT/S", "ACKNOWLEDGED", "REFUSED", "LAST FAILURE"}}
	for _, e := range all {
		rows = append(rows, []string{
			cmp.Or(e.GetName(), halfmsg.DefaultExchange), cmp.Or(e.GetBroker(), "(default)"),
			perSecond(e.GetAcknowledgedPerSecond()), strconv.FormatInt(e.GetAcknowledgedTotal(), 10),
			strconv.FormatInt(e.GetRefusedTotal(), 10),
			failureOf(ageOf(e.GetLastFailureTime(), now), e.GetLastFailure()),
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

// failureOf writes when a call failed, and the reason of its error. Documents have the whole error.
func failureOf(ago, failure string) string {
	if failure == "" {
		return "-"
	}
	return ago + ": " + halfmsg.Reason(failure)
}
