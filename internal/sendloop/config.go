package sendloop

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/logtext"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Config says how a Sender works. Every field is required, except where its comment says otherwise.
type Config struct {
	// Store is where messages are claimed and outcomes are stored.
	Store halfmsg.SendStore
	// Brokers are the brokers by name, with "" for the default broker.
	Brokers map[string]Broker
	// Pipeline takes messages that the broker has acknowledged, gets each move, and has another Pass made when more may
	// wait in the store and there is room again.
	Pipeline *delivery.Pipeline
	// DeleteAfterAck says that markers are deleted after the acknowledgement. Acknowledged messages then become
	// ACKNOWLEDGED and go on with their lease; otherwise they are DONE at once.
	DeleteAfterAck bool

	// Backoff is how long after each refusal a message is published again; the refusal after the last step makes it
	// DEAD.
	Backoff backoff.Steps
	// Batch is how many messages are claimed and published at once.
	Batch int
	// Parallel is how many batches to a broker may be under way at once.
	Parallel int
	// Lease is for how long Pass claims messages, and for how long acknowledged ones are held for the deletion of their
	// markers.
	Lease time.Duration
	// Margin is how long a lease must still last for a message to be published; it should be as long as the publisher
	// may take.
	Margin time.Duration
	// Queue bounds the messages in memory for a broker.
	Queue int

	// Logger gets one line for each event that a person may need. Default slog.Default().
	Logger *slog.Logger
	// Language is the language of the fixed text for messages that could not be published; empty is English.
	Language logtext.Language
	// Metrics hears of publishings and moves; may be nil.
	Metrics Metrics
}

// Broker is a broker of a Sender.
type Broker struct {
	// Publisher brings messages to the broker.
	Publisher halfmsg.Publisher
	// DeadLetterExchange is where DEAD messages for the broker are copied; empty: nowhere.
	DeadLetterExchange string
}

// Metrics counts the publishings and moves of a Sender. The methods must not block.
type Metrics interface {
	delivery.Metrics
	// Published tells how many messages to an exchange of a broker had an outcome. Copies to the dead-letter exchange are
	// not counted.
	Published(broker, exchange string, outcome halfmsg.Outcome, messages int)
	// Failed tells why a message to an exchange was not acknowledged, once for each exchange of a batch.
	Failed(broker, exchange string, cause error)
	// PublishedBatch tells how many messages of a batch the broker answered at once, how many of them it acknowledged, and
	// how long after the batch was sent.
	PublishedBatch(broker string, messages, acked int, took time.Duration)
	// Acked tells of messages whose acknowledgements have just been stored. The claims must not be kept.
	Acked(claims []halfmsg.Claim)
}

// maxQueuedBytes bounds the bodies of the messages that wait in memory. The brokers have equal parts.
const maxQueuedBytes = 128 << 20

// complete panics when a required value is missing, which is a mistake in the program: internal/config has defaults.
func (c Config) complete() Config {
	numbers := min(len(c.Backoff), c.Batch, c.Parallel, int(c.Lease), int(c.Margin), c.Queue)
	if c.Brokers[""].Publisher == nil || numbers <= 0 {
		panic("sendloop: a required value of Config is not set")
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Metrics == nil {
		c.Metrics = silence{}
	}
	return c
}

// silence is the default Metrics, which counts nothing.
type silence struct{}

func (silence) Settled(halfmsg.Event, string, int)             {}
func (silence) Published(string, string, halfmsg.Outcome, int) {}
func (silence) Failed(string, string, error)                   {}
func (silence) PublishedBatch(string, int, int, time.Duration) {}
func (silence) Acked([]halfmsg.Claim)                          {}
