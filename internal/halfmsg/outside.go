package halfmsg

import (
	"context"
	"fmt"
	"time"
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

// Publishing is a copy of a message on its way to the broker.
type Publishing struct {
	Name        Name
	Exchange    string
	RoutingKey  string
	ContentType string
	Headers     map[string]string
	Body        []byte
	// Trace becomes the traceparent header, unless Headers has a traceparent.
	Trace string
	// DueAt is when the message became due. It becomes the timestamp property, or a header where the broker has no
	// such property.
	DueAt time.Time
	// Attempt is 1 for the first copy; it becomes the msghandler-attempt header.
	Attempt int
	// Publication numbers a publishing on purpose under a name that has been published already: a replay, or the copy of a
	// DEAD message. It is empty for the first one. A broker drops repeats of one publication only.
	Publication string
}

// Outcome is the broker's answer to a publishing.
type Outcome uint8

// The outcomes.
const (
	// Acked: the broker has the copy in at least one queue.
	Acked Outcome = iota + 1
	// Refused: a nack, a return as unroutable, no such exchange, no permission. An answer, so an attempt.
	Refused
	// Unsure: the copy was sent and no answer came. A copy may be out.
	Unsure
	// Unsent: the copy never left; the broker is unreachable or blocked, or the publisher is stopping.
	Unsent
)

// String gives the outcome's name for logs and metrics.
func (o Outcome) String() string {
	switch o {
	case Acked:
		return "acked"
	case Refused:
		return "refused"
	case Unsure:
		return "unsure"
	case Unsent:
		return "unsent"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// PublishResult is the result of a publishing; Cause is the reason if the publishing is not Acked.
type PublishResult struct {
	Outcome Outcome
	Cause   error
}

// Publisher brings messages to the broker.
type Publisher interface {
	// Publish sends a batch and hands the outcomes to answered, in groups as they come: a single group as a rule, and more
	// groups for messages that take longer. The first group comes soon, and may be empty. places are indexes of the batch;
	// each place is handed over once, and its message belongs to the caller again. answered is not called concurrently and
	// must not block. Publish returns when all outcomes were handed over, at the latest after the publisher's confirm
	// timeout. When the context ends, messages not sent yet are Unsent, and Publish still waits for the others. Publish
	// may be called concurrently.
	Publish(ctx context.Context, batch []Publishing, answered func(places []int, results []PublishResult))
	// Ready is nil while the broker takes messages; otherwise the error says why not, and no messages should be claimed.
	Ready() error
}
