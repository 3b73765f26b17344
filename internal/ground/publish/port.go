package publish

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Name identifies a message.
type Name struct {
	Producer string
	ID       string
}

// String gives PRODUCER/ID, the form that operators type.
func (n Name) String() string { return n.Producer + "/" + n.ID }

// LogValue is the name as log lines show it.
func (n Name) LogValue() slog.Value { return slog.StringValue(n.String()) }

// Message is a copy of a message on its way to the broker.
type Message struct {
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
	// Dead says that this is the coordinator's copy of a DEAD message, for the dead-letter exchange.
	Dead bool
}

// Outcome is the broker's answer to a message.
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

// Because is the result with this outcome, and its cause.
func (o Outcome) Because(cause error) Result { return Result{Outcome: o, Cause: cause} }

// Result is the result of a message; Cause is the reason if the message is not Acked.
type Result struct {
	Outcome Outcome
	Cause   error
}

// Publisher brings messages to the broker.
type Publisher interface {
	// Publish sends a batch and hands the outcomes to answered, in groups as they come: a single group as a rule, and more
	// groups for messages that take longer. The first group comes soon, and may be empty. places are indexes of the batch;
	// each place is handed over once, and its message belongs to the caller again. answered is not called concurrently and
	// must not block. Publish returns when all outcomes were handed over, at the latest after the publisher's confirm
	// timeout, or at the context's deadline. When the context is cancelled, messages not sent yet are Unsent, and Publish
	// still waits for the others. Publish may be called concurrently.
	Publish(ctx context.Context, batch []Message, answered func(places []int, results []Result))
	// Ready is nil while the broker takes messages; otherwise the error says why not, and no messages should be claimed.
	Ready() error
}

// Client is a Publisher with a life.
type Client interface {
	Publisher
	// Await waits until Ready is nil, or until the context ends, and returns what Ready returns then.
	Await(ctx context.Context) error
	// InFlight is how many messages the broker has not answered yet.
	InFlight() int
	// Close waits until the broker has answered, or the context ends, and disconnects.
	Close(ctx context.Context) error
}
