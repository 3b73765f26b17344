package confirmloop

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// DeleteWhen says when markers of committed messages are deleted.
type DeleteWhen uint8

const (
	// BeforePublish deletes a marker once the verdict is stored, before the message is published.
	BeforePublish DeleteWhen = iota
	// AfterAck deletes a marker when the broker has acknowledged the message; the send stage then calls OfferAcknowledged.
	AfterAck
)

// Config says how a Confirmer works. Every field is required, except where its comment says otherwise.
type Config struct {
	// Store is where messages are claimed and verdicts are stored.
	Store halfmsg.ConfirmStore
	// Callbacks calls the producers.
	Callbacks halfmsg.Callbacks
	// Pipeline takes messages that have become SENDABLE and are due now, gets each move, and has another Pass made when a
	// producer for which more may wait in the store has room again.
	Pipeline *delivery.Pipeline

	// Backoff is how long after an UNKNOWN the producer is asked again.
	Backoff backoff.Steps
	// Attempts is how many UNKNOWNs come before the final question.
	Attempts int
	// GiveUpAfter is how long after SendHalfMessage the final question comes, however many attempts are left. UNKNOWN and
	// no answer both give the message up then. Zero is no limit.
	GiveUpAfter time.Duration
	// Patience is how long a committed message waits for the verdict about a message before it in its chain until the
	// final question comes, however many attempts are left. Zero is no limit.
	Patience time.Duration
	// Batch is how many messages go into one call, at most 500.
	Batch int
	// Lease is for how long Pass claims messages.
	Lease time.Duration
	// SendLease is for how long a SENDABLE message is leased for the send stage.
	SendLease time.Duration
	// Margin is how long a lease must still last for a call to be begun.
	Margin time.Duration

	// CallsPerProducer is how many batches of one producer may be under way at once.
	CallsPerProducer int
	// QueuePerProducer bounds the messages that wait in memory for one producer.
	QueuePerProducer int

	// DeleteWhen is when markers of committed messages are deleted. The zero value is BeforePublish.
	DeleteWhen DeleteWhen
	// DeleteTimeout bounds one DeleteBusiness call, and so how long it may hold messages up.
	DeleteTimeout time.Duration

	// AnsweredAt is when the producers last answered any coordinator, as far as is known. May be nil.
	AnsweredAt func() map[string]time.Time

	// Trace begins the span of a Confirm call, with the traces of the messages. Trace returns the context of the call, and
	// a function that ends the span. May be nil.
	Trace func(ctx context.Context, producer string, traces []string) (context.Context, func(err error))

	// Logger gets one line for each event that a person may need. Default slog.Default().
	Logger *slog.Logger
	// Metrics hears of calls and moves; may be nil.
	Metrics Metrics

	limits limits
}

// limits are the bounds that no configuration key sets. The zero value means standardLimits.
type limits struct {
	// bytesPerProducer bounds the bodies of the messages that wait in memory for one producer.
	bytesPerProducer int
	// queue is how many messages may wait for all producers together before each is granted only a Batch.
	queue int
	// breakerFailures is how many calls in a row must not reach a target to open its circuit breaker.
	breakerFailures int
	// breakerPause is how long the breaker stays open before a probe.
	breakerPause backoff.Steps
	// deleteTries is how often the deletion of a marker is tried.
	deleteTries int
	// deleteBacklog is how many markers may wait for another try; those of one target may be a quarter of them. Further
	// markers stay until the producer cleans up, or, of acknowledged messages, until the store returns their messages.
	deleteBacklog int
}

func standardLimits() limits {
	return limits{
		bytesPerProducer: 64 << 20,
		queue:            50_000,
		breakerFailures:  3,
		breakerPause:     backoff.Exponential(time.Second, time.Minute),
		deleteTries:      5,
		deleteBacklog:    20_000,
	}
}

// Metrics counts the calls and moves of a Confirmer. The methods must not block.
type Metrics interface {
	delivery.Metrics
	// Confirmed tells of one Confirm call: the verdicts, or that the producer was not reached.
	Confirmed(producer string, messages int, verdicts map[string]halfmsg.Verdict, took time.Duration, err error)
	// Committed tells of a message whose verdict COMMITTED has just been stored. The claim must not be kept.
	Committed(claim *halfmsg.Claim)
	// Deleted tells of one DeleteBusiness call.
	Deleted(producer string, markers int, took time.Duration, err error)
	// MarkersLeft counts markers that are left to the producer's own clean-up.
	MarkersLeft(producer string, markers int)
	// Paused reports a target of the producer whose circuit opens or closes.
	Paused(producer string, paused bool)
}

// complete panics when a required value is missing, which is a mistake in the program: internal/config has defaults.
func (c Config) complete() Config {
	if min(
		len(c.Backoff), c.Attempts, c.Batch, int(c.Lease), int(c.SendLease), int(c.Margin), c.CallsPerProducer,
		c.QueuePerProducer, int(c.DeleteTimeout),
	) <= 0 {
		panic("confirmloop: a required value of Config is not set")
	}
	c.Batch = min(c.Batch, 500)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.limits.queue == 0 {
		c.limits = standardLimits()
	}
	if c.Metrics == nil {
		c.Metrics = silence{}
	}
	return c
}

// silence is the default Metrics, which counts nothing.
type silence struct{}

func (silence) Settled(halfmsg.Event, string, int)                                      {}
func (silence) Confirmed(string, int, map[string]halfmsg.Verdict, time.Duration, error) {}
func (silence) Committed(*halfmsg.Claim)                                                {}
func (silence) Deleted(string, int, time.Duration, error)                               {}
func (silence) MarkersLeft(string, int)                                                 {}
func (silence) Paused(string, bool)                                                     {}
