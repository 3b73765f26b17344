package consumer

import (
	"time"

	"github.com/msghandler/msghandler/internal/ground/deadletter"
)

// Letter is a dead letter.
type Letter struct {
	// Message is the published message, with its first Exchange and RoutingKey.
	Message
	// Queue is the queue from which the message was consumed.
	Queue string
	// Reason is the last failure of the message, or the broker's reason, such as delivery_limit.
	Reason string
	// FirstFailedAt is the time of the first failure (RFC 3339); empty when the broker dead-lettered the message.
	FirstFailedAt string
	// DeadAt is when a broker took the message as a dead letter; zero where RabbitMQ took the letter from a consumer.
	DeadAt time.Time
	// cutName says that Bounded has cut the name or the destination.
	cutName bool
}

// Name is the key of a letter: its Message.Key, or PRODUCER/ for a message without an id, like all such letters of
// this producer.
func (l *Letter) Name() string { return l.Producer + "/" + l.ID }

// Since is since when a letter waits: the time of the first failure, else of the dead-lettering, else of the message.
func (l *Letter) Since() time.Time {
	if first, ok := deadletter.ParseTime(l.FirstFailedAt); ok {
		return first
	}
	if !l.DeadAt.IsZero() {
		return l.DeadAt
	}
	return l.Timestamp
}
