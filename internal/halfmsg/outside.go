package halfmsg

import (
	"context"
	"fmt"
	"time"
)

// Verdict is a producer's answer about one local transaction. The values are those of msghandler.v1.Verdict.
type Verdict uint8

// The verdicts. Whatever a producer answers that is none of these counts as VerdictUnknown. VerdictUnavailable is no
// answer about the message, and costs it no attempt: the producer could not find out.
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
	// Address is a gRPC target: dns:///host:port or host:port.
	Address string
}

// Callbacks calls producers. Methods may be called concurrently and block until the producer has answered, the call's
// own timeout has passed or the context ends. An error means that the producer gave no answer: no verdict, no used
// attempt, whatever the reason. It is ErrCallFailed where asking about fewer messages may bring one.
type Callbacks interface {
	// Confirm asks for the fate of messages. The answer holds a verdict for every id that was asked about; those the
	// producer left out or answered with nonsense are VerdictUnknown.
	Confirm(ctx context.Context, target Target, ids []string, final bool) (map[string]Verdict, error)
	// DeleteBusiness tells the producer that it may forget its markers.
	DeleteBusiness(ctx context.Context, target Target, ids []string) error
}

// Publishing is one copy of a message on its way to the broker.
type Publishing struct {
	Name        Name
	Exchange    string
	RoutingKey  string
	ContentType string
	Headers     map[string]string
	Body        []byte
	// Trace becomes the traceparent header, where Headers has none.
	Trace string
	// SendableAt becomes the timestamp property.
	SendableAt time.Time
	// Attempt is 1 for the first copy; it becomes the msghandler-attempt header.
	Attempt int
}

// Outcome is what the broker said of one publishing.
type Outcome uint8

// The outcomes.
const (
	// Acked: the broker has it in at least one queue.
	Acked Outcome = iota + 1
	// Refused: a nack, a return as unroutable, no such exchange, no permission. An answer, so an attempt.
	Refused
	// Unsure: it was sent and no answer came. A copy may be out.
	Unsure
	// Unsent: it never left; the broker is away, blocked or stopping.
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

// PublishResult is what became of one publishing; Cause says why when it was not Acked.
type PublishResult struct {
	Outcome Outcome
	Cause   error
}

// Publisher brings messages to the broker.
type Publisher interface {
	// Publish sends a batch and hands the outcomes to answered, in groups as they come: once as a rule, and again for
	// those that take longer than the others. The first group comes soon, and may be empty. places are those of the
	// batch; each is handed over once, and its message is the caller's again. answered is not called concurrently and
	// must not block. Publish returns when all were handed over, at the latest after the publisher's confirm timeout.
	// When the context ends, those not sent yet are Unsent and those on their way are still waited for. It may be called
	// concurrently.
	Publish(ctx context.Context, batch []Publishing, answered func(places []int, results []PublishResult))
	// Ready is nil while the broker takes messages; otherwise it says why not, and claiming messages would be in vain.
	Ready() error
}
