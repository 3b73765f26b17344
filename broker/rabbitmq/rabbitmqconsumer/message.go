package rabbitmqconsumer

import (
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
)

// Headers of a quorum queue: the number of returns to the queue, and since RabbitMQ 4.3 the number of deliveries.
const (
	headerDeliveryCount = "x-delivery-count"
	headerAcquiredCount = "x-acquired-count"
)

// newMessage is a delivery as a message. returns is how many of its deliveries count against the queue's delivery
// limit: RabbitMQ before 4.3 counts all.
func newMessage(d *amqp.Delivery) (m *consumer.Message, returns int) {
	m = &consumer.Message{
		ID: d.MessageId, Producer: d.AppId, Redelivered: d.Redelivered,
		Attempt:  max(1, number(d.Headers["msghandler-attempt"])),
		Exchange: d.Exchange, RoutingKey: d.RoutingKey, ContentType: d.ContentType,
		Headers: make(map[string]string, len(d.Headers)), Body: d.Body, Timestamp: deadletter.Time(d.Timestamp),
	}
	if d.Redelivered { // RabbitMQ 4 hands on these headers of a publisher
		returns = number(d.Headers[headerDeliveryCount])
		m.Deliveries = max(returns, number(d.Headers[headerAcquiredCount]))
	}
	m.FirstCause, _ = d.Headers[consumer.HeaderFirstCause].(string)
	_, copied := d.Headers[consumer.HeaderRoutingKey]
	if m.Retries = number(d.Headers[consumer.HeaderRetries]); m.Retries > 0 || copied && d.Exchange == "" {
		m.Exchange, _ = d.Headers[consumer.HeaderExchange].(string)
		m.RoutingKey, _ = d.Headers[consumer.HeaderRoutingKey].(string)
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
	return m, returns
}

// number reads a header that counts something, of any integer type. Anything else is 0.
func number(header any) int {
	switch header.(type) {
	case int8, int16, int32, int64, uint8, uint16, uint32, int, string:
		return deadletter.Count(fmt.Sprint(header))
	}
	return 0
}
