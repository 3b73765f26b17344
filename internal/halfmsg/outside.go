package halfmsg

import (
	"context"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

// Verdict is a producer's answer about a local transaction. The values equal msghandler.v1.Verdict.
type Verdict uint8

// The verdicts. Any other answer of a producer counts as VerdictUnknown. VerdictUnavailable is no answer about the
// message, and uses up no attempt: the producer could not find out.
const (
	VerdictUnknown     Verdict = 1
	VerdictCommitted   Verdict = 2
	VerdictRolledBack  Verdict = 3
	VerdictUnavailable Verdict = 4
)

// String gives the verdict's name for logs and metrics.
func (v Verdict) String() string {
	switch v {
	case VerdictCommitted:
		return "committed"
	case VerdictRolledBack:
		return "rolled_back"
	case VerdictUnavailable:
		return "unavailable"
	default:
		return "unknown"
	}
}

// Target is where a producer is called back.
type Target struct {
	Producer string
	// Address is dns:///host:port or host:port for gRPC, a URL for HTTP, or the AttendTarget of the producer.
	Address string
	// MarkerStore is the store that the messages of a call name; empty where they name none. Only its verdicts count.
	MarkerStore string
}

// AttendScheme begins the target of a producer that is asked over its own streams.
const AttendScheme = "attend:///"

// ProbePrefix begins the ids with which producers are examined. No message has such an id, except on purpose.
const ProbePrefix = "msghandler-doctor-"

// AttendTarget is the target of a producer that attends.
func AttendTarget(producer string) string { return AttendScheme + producer }

// Callbacks calls producers. Methods may be called concurrently and block until the producer has answered, the call's
// own timeout has passed or the context ends. After an error there is no answer, for any reason: no verdict, no used
// attempt. The error is ErrCallFailed if a call about fewer messages may have an answer.
type Callbacks interface {
	// Confirm asks for the fate of messages. The answer holds a verdict for every id of the call. An id that the producer
	// left out or answered with nonsense is VerdictUnknown.
	Confirm(ctx context.Context, target Target, ids []string, final bool) (map[string]Verdict, error)
	// DeleteBusiness lets the producer delete its markers.
	DeleteBusiness(ctx context.Context, target Target, ids []string) error
}

// The port of a broker. Its types stand in package publish, because the SDKs' outbox publishes through the same port,
// and imports no room of the coordinator.
type (
	// Publisher brings messages to the broker.
	Publisher = publish.Publisher
	// Publishing is a copy of a message on its way to the broker.
	Publishing = publish.Message
	// Outcome is the broker's answer to a publishing.
	Outcome = publish.Outcome
	// PublishResult is the result of a publishing; Cause is the reason if the publishing is not Acked.
	PublishResult = publish.Result
)

// The outcomes.
const (
	// Acked: the broker has the copy in at least one queue.
	Acked = publish.Acked
	// Refused: a nack, a return as unroutable, no such exchange, no permission. An answer, so an attempt.
	Refused = publish.Refused
	// Unsure: the copy was sent and no answer came. A copy may be out.
	Unsure = publish.Unsure
	// Unsent: the copy never left; the broker is unreachable or blocked, or the publisher is stopping.
	Unsent = publish.Unsent
)
