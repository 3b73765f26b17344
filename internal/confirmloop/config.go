package confirmloop

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/msghandler/msghandler/internal/backoff"
	"github.com/msghandler/msghandler/internal/delivery"
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

// Config says how a Confirmer works. Zero values mean the defaults.
type Config struct {
	// Store is where messages are claimed and verdicts are stored. Required.
	Store halfmsg.ConfirmStore
	// Callbacks calls the producers. Required.
	Callbacks halfmsg.Callbacks
	// Pipeline takes messages that have become SENDABLE and are due now, gets each move, and has another Pass made when a
	// producer for which more may wait in the store has room again. Required.
	Pipeline *delivery.Pipeline

	// Backoff is how long after an UNKNOWN the producer is asked again. Default 5s, 10s, 30s, 1m, 2m, 5m.
	Backoff backoff.Steps
	// Attempts is how many UNKNOWNs come before the final question. Default 15.
	Attempts int
	// Batch is how many messages go into one call. Default 200, at most 500.
	Batch int
	// Lease is for how long Pass claims messages. Default 30s.
	Lease time.Duration
	// SendLease is for how long a message that became SENDABLE is held for Send. Default 30s.
	SendLease time.Duration
	// Margin is how long a lease must still last for a call to be begun. Default a third of Lease.
	Margin time.Duration

	// CallsPerProducer is how many batches of one producer may be under way at once. Default 4.
	CallsPerProducer int
	// QueuePerProducer and BytesPerProducer bound what waits in memory for one producer: messages, and the size of
	// their bodies. Defaults 2,000 and 64 MiB.
	QueuePerProducer int
	BytesPerProducer int
	// Queue is how many messages may wait for all producers together before each is granted only a Batch. Default
	// 50,000.
	Queue int
	// BreakerFailures is how many calls in a row must not reach a target to open its circuit breaker. Default 3.
	BreakerFailures int
	// BreakerPause is how long the breaker stays open before a probe. Default from 1s doubling to 1m.
	BreakerPause backoff.Steps

	// DeleteWhen is when markers of committed messages are deleted. Default BeforePublish.
	DeleteWhen DeleteWhen
	// DeleteTimeout bounds one DeleteBusiness call, and so how long it may hold messages up. Default 3s.
	DeleteTimeout time.Duration
	// DeleteTries is how often the deletion of a marker is tried. Default 5.
	DeleteTries int
	// DeleteBacklog is how many markers may wait to be tried again; those of one target may be a quarter of them. What
	// does not fit is left to the producer's own clean-up, or, of acknowledged messages, waits in the store. Default
	// 20,000.
	DeleteBacklog int

	// Trace is told of a Confirm call before it is made, with the traces of its messages; what it returns is the call's
	// context, and what to call when it is over. May be nil.
	Trace func(ctx context.Context, producer string, traces []string) (context.Context, func(err error))

	// Logger gets one line for each event that a person may need. Default slog.Default().
	Logger *slog.Logger
	// Metrics hears of calls and moves; may be nil.
	Metrics Metrics
}

// Metrics hears what a Confirmer does. Its methods must not block.
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

func (c Config) withDefaults() Config {
	if len(c.Backoff) == 0 {
		c.Backoff = backoff.Steps{
			5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
		}
	}
	if len(c.BreakerPause) == 0 {
		c.BreakerPause = backoff.Exponential(time.Second, time.Minute)
	}
	c.Attempts = cmp.Or(c.Attempts, 15)
	c.Batch = min(cmp.Or(c.Batch, 200), 500)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.SendLease = cmp.Or(c.SendLease, 30*time.Second)
	c.Margin = cmp.Or(c.Margin, c.Lease/3)
	c.CallsPerProducer = cmp.Or(c.CallsPerProducer, 4)
	c.QueuePerProducer = cmp.Or(c.QueuePerProducer, 2000)
	c.BytesPerProducer = cmp.Or(c.BytesPerProducer, 64<<20)
	c.Queue = cmp.Or(c.Queue, 50_000)
	c.BreakerFailures = cmp.Or(c.BreakerFailures, 3)
	c.DeleteTimeout = cmp.Or(c.DeleteTimeout, 3*time.Second)
	c.DeleteTries = cmp.Or(c.DeleteTries, 5)
	c.DeleteBacklog = cmp.Or(c.DeleteBacklog, 20_000)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Metrics == nil {
		c.Metrics = silence{}
	}
	return c
}

// silence is the Metrics of those who want none.
type silence struct{}

func (silence) Settled(halfmsg.Event, string, int)                                      {}
func (silence) Confirmed(string, int, map[string]halfmsg.Verdict, time.Duration, error) {}
func (silence) Committed(*halfmsg.Claim)                                                {}
func (silence) Deleted(string, int, time.Duration, error)                               {}
func (silence) MarkersLeft(string, int)                                                 {}
func (silence) Paused(string, bool)                                                     {}
