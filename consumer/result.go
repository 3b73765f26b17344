package consumer

import (
	"time"

	"github.com/msghandler/msghandler/internal/ground/deadletter"
)

// Headers of the copies that a consumer puts into a delay queue or among the dead letters.
const (
	// HeaderRetries is how often the message was retried.
	HeaderRetries = deadletter.HeaderRetries
	// HeaderFirstCause is the text of the first failure, up to 1,000 characters, and HeaderFirstFailedAt its time (RFC
	// 3339).
	HeaderFirstCause    = deadletter.HeaderFirstCause
	HeaderFirstFailedAt = deadletter.HeaderFirstFailedAt
	// HeaderDeadReason is the text of the last failure.
	HeaderDeadReason = deadletter.HeaderDeadReason
	// HeaderQueue, HeaderExchange and HeaderRoutingKey are the consumed queue, and the first exchange and routing key.
	HeaderQueue      = deadletter.HeaderQueue
	HeaderExchange   = deadletter.HeaderExchange
	HeaderRoutingKey = deadletter.HeaderRoutingKey
	// HeaderCut is how many bytes the body of the message has. Only a dead letter has it that was cut, since the whole
	// message did not fit. Such a letter is not replayed.
	HeaderCut = deadletter.HeaderCut
)

// Result is the result of a delivery.
type Result string

// The results.
const (
	// Effect: the handler succeeded, and the message was acknowledged.
	Effect Result = "effect"
	// Duplicate: a copy was handled before, and the message was dropped.
	Duplicate Result = "duplicate"
	// Retried: the handler failed, and the message is redelivered, at once or after a delay.
	Retried Result = "retried"
	// Dead: the message went to the dead letters, or was dropped because the queue has none.
	Dead Result = "dead"
)

// Observer receives the activity of a consumer. Its methods are called concurrently and must not block.
type Observer interface {
	// Begun: a message of the queue was handed to the handler.
	Begun(queue string)
	// Ended: the broker has the result of a message. took is the handler's time.
	Ended(queue string, result Result, took time.Duration)
	// Depth: the number of messages that wait in the queue, the topic or the stream. On NATS the messages that a consumer
	// holds count too, and on Kafka a consumer counts its own partitions.
	Depth(queue string, messages int)
	// DeadLetters: the number of the queue's dead letters, on RabbitMQ if Declare names a dead-letter exchange. With a
	// DeadLetterKey, which several queues may share, queue is the dead-letter queue; on NATS and Kafka queue is the stream
	// or the topic of the dead letters.
	DeadLetters(queue string, messages int)
}
