package consumer

import (
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/ground/deadletter"
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
	// Redelivered is set when the broker delivered this copy before, to this consumer or another.
	Redelivered bool
	// Deliveries is how often a quorum queue delivered this copy before, for any reason; 0 for other queues.
	Deliveries int
	// returns is how many of these deliveries count against the queue's delivery limit. RabbitMQ before 4.3 counts all.
	returns int
	// Retries is how often the message waited in a delay queue, and FirstCause the text of its first failure.
	Retries    int
	FirstCause string
	// Queue is the queue of this delivery, and Consumer the Config.Name of its consumer.
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

// Headers of a quorum queue: the number of returns to the queue, and since RabbitMQ 4.3 the number of deliveries.
const (
	headerDeliveryCount = "x-delivery-count"
	headerAcquiredCount = "x-acquired-count"
)

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

func newMessage(d *amqp.Delivery) *Message {
	m := &Message{
		ID: d.MessageId, Producer: d.AppId, Redelivered: d.Redelivered,
		Attempt:  max(1, number(d.Headers["msghandler-attempt"])),
		Exchange: d.Exchange, RoutingKey: d.RoutingKey, ContentType: d.ContentType,
		Headers: make(map[string]string, len(d.Headers)), Body: d.Body, Timestamp: deadletter.Time(d.Timestamp),
	}
	if d.Redelivered { // RabbitMQ 4 hands on these headers of a publisher
		m.returns = number(d.Headers[headerDeliveryCount])
		m.Deliveries = max(m.returns, number(d.Headers[headerAcquiredCount]))
	}
	m.FirstCause, _ = d.Headers[HeaderFirstCause].(string)
	_, copied := d.Headers[HeaderRoutingKey]
	if m.Retries = number(d.Headers[HeaderRetries]); m.Retries > 0 || copied && d.Exchange == "" {
		m.Exchange, _ = d.Headers[HeaderExchange].(string)
		m.RoutingKey, _ = d.Headers[HeaderRoutingKey].(string)
	}
	for name, value := range d.Headers {
		if strings.HasPrefix(name, "x-") || strings.HasPrefix(name, "msghandler-") {
			continue
		}
		switch value := value.(type) {
		case string:
			m.Headers[name] = value
		case []any, amqp.Table, nil:
		default:
			m.Headers[name] = fmt.Sprint(value)
		}
	}
	return m
}

// number reads a header that counts something, of any integer type. Anything else is 0.
func number(header any) int {
	switch header.(type) {
	case int8, int16, int32, int64, uint8, uint16, uint32, int, string:
		return deadletter.Count(fmt.Sprint(header))
	}
	return 0
}
