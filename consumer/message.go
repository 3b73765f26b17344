package consumer

import (
	"strings"
	"time"
)

// Message is one delivery. A handler may keep the message, but must not change its fields while other middleware uses
// them.
type Message struct {
	// ID is the producer's business number, unique for that producer; empty when the message came from another
	// publisher, without an id.
	ID string
	// Producer is the name of the producer.
	Producer string
	// Attempt is 1 for the first copy that the coordinator published. Above 1, an earlier copy may have been delivered.
	Attempt int
	// Redelivered is set when the broker delivered this copy before, to this consumer or another. Never on Kafka.
	Redelivered bool
	// Deliveries is how often a quorum queue of RabbitMQ, or a stream of NATS, delivered this copy before, for any reason;
	// 0 for classic queues and on Kafka.
	Deliveries int
	// Retries is how often the message waited in a delay queue or a retry topic, and FirstCause the text of its first
	// failure. On NATS, Retries is Deliveries, and FirstCause is empty.
	Retries    int
	FirstCause string
	// Queue is the queue, topic or stream of this delivery, and Consumer the Config.Name of its consumer.
	Queue, Consumer string
	// Exchange and RoutingKey are those of the first publishing, also after a wait in a delay queue.
	Exchange, RoutingKey string
	// ContentType is the body's media type, as given by the producer.
	ContentType string
	// Headers are the producer's own and the trace context. Headers of the broker (x-) and the coordinator
	// (msghandler-), lists and tables are left out; other values that are not text are in Go's notation.
	Headers map[string]string
	// Body is the content.
	Body []byte
	// Timestamp is when the message became due: its delay after the commit was known; on RabbitMQ in whole seconds. Zero:
	// no time, or a time after the year 9999, as of a publisher that writes milliseconds where the broker expects seconds.
	Timestamp time.Time
}

// Key identifies the message among all producers: PRODUCER/ID. Key is empty for a message without an ID.
func (m *Message) Key() string {
	if m.ID == "" {
		return ""
	}
	return m.Producer + "/" + m.ID
}

// TraceID is the trace id of the message's trace context; empty without a trace context.
func (m *Message) TraceID() string {
	// VERSION-TRACE-SPAN-FLAGS
	if parts := strings.Split(m.Headers["traceparent"], "-"); len(parts) >= 4 {
		return parts[1]
	}
	return ""
}
