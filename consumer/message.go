package consumer

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Message is one delivery. A handler may keep it, but must not change it while other middleware uses it.
type Message struct {
	// ID is the producer's business number, unique for that producer; empty when it was not the coordinator that
	// published the message and the publisher gave none.
	ID string
	// Producer is who sent it.
	Producer string
	// Attempt is 1 for the first copy that the coordinator published. More than 1 says that an earlier copy may be out.
	Attempt int
	// Redelivered is set when the broker delivered this copy before, to this consumer or another.
	Redelivered bool
	// Deliveries is how often a quorum queue delivered this copy before, for whatever reason it came back; 0 for other queues.
	Deliveries int
	// returns is how many of those deliveries count against the queue's delivery limit. RabbitMQ before 4.3 counts all.
	returns int
	// Retries is how often it waited in a delay queue, and FirstCause why it failed first.
	Retries    int
	FirstCause string
	// Queue is where it was consumed, and Consumer who did: Config.Name.
	Queue, Consumer string
	// Exchange and RoutingKey are those it was published with, also after it waited in a delay queue.
	Exchange, RoutingKey string
	// ContentType is the body's media type, as the producer gave it.
	ContentType string
	// Headers are the producer's own and the trace context. Those of the broker (x-) and the coordinator (msghandler-),
	// lists and tables are left out; other values that are not text are in Go's notation.
	Headers map[string]string
	// Body is the content.
	Body []byte
	// Timestamp is when the coordinator knew that the message was committed and due; seconds are as fine as it gets.
	Timestamp time.Time
}

// Headers of a quorum queue: how often it took the message back, and since RabbitMQ 4.3 how often a client had it.
const (
	headerDeliveryCount = "x-delivery-count"
	headerAcquiredCount = "x-acquired-count"
)

// Key names the message among those of all producers: PRODUCER/ID. It is empty when the message has no ID.
func (m *Message) Key() string {
	if m.ID == "" {
		return ""
	}
	return m.Producer + "/" + m.ID
}

// TraceID is that of the trace context that came with the message; empty when none did.
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
		Headers: make(map[string]string, len(d.Headers)), Body: d.Body, Timestamp: d.Timestamp,
	}
	if d.Redelivered { // RabbitMQ 4 hands on these headers of a publisher
		m.returns = number(d.Headers[headerDeliveryCount])
		m.Deliveries = max(m.returns, number(d.Headers[headerAcquiredCount]))
	}
	m.FirstCause, _ = d.Headers[HeaderFirstCause].(string)
	if m.Retries = number(d.Headers[HeaderRetries]); m.Retries > 0 {
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

// number reads a header that counts something, in whichever width it was sent; anything else is 0, and so is less than
// nothing, which anybody may send.
func number(header any) int {
	switch header.(type) {
	case int8, int16, int32, int64, uint8, uint16, uint32, int, string:
		n, _ := strconv.Atoi(fmt.Sprint(header))
		return max(n, 0)
	}
	return 0
}
