package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

const (
	// maxShort is how many bytes an AMQP short string holds.
	maxShort = 255
	// maxHeaders is how many bytes of headers are sent. All properties must fit into one frame. RabbitMQ's default limit
	// is 128 KiB, and a longer frame ends the whole connection.
	maxHeaders = 64 << 10
)

// check says why a message cannot be expressed in AMQP. Such a message would close the connection.
func check(m *publish.Message) error {
	for _, field := range [...]struct{ name, value string }{
		{"exchange", m.Exchange},
		{"routing key", m.RoutingKey},
		{"content type", m.ContentType},
		{"message id", m.Name.ID},
		{"producer", m.Name.Producer},
	} {
		if len(field.value) > maxShort {
			return fmt.Errorf("the %s has %d bytes, more than the %d that AMQP allows", field.name, len(field.value), maxShort)
		}
	}
	size := 0
	for key, value := range m.Headers {
		if len(key) > maxShort {
			return fmt.Errorf("a header's name has %d bytes, more than the %d that AMQP allows", len(key), maxShort)
		}
		size += len(key) + len(value)
	}
	if size > maxHeaders {
		return fmt.Errorf("the headers have %d bytes, more than the %d that fit", size, maxHeaders)
	}
	return nil
}

// properties is the message in the form of the library.
func properties(m *publish.Message) amqp.Publishing {
	headers := make(amqp.Table, len(m.Headers)+2)
	for key, value := range m.Headers {
		headers[key] = value
	}
	if _, own := headers[publish.HeaderTrace]; m.Trace != "" && !own {
		headers[publish.HeaderTrace] = m.Trace
	}
	headers[publish.HeaderAttempt] = int64(m.Attempt)
	return amqp.Publishing{
		DeliveryMode: amqp.Persistent,
		MessageId:    m.Name.ID,
		AppId:        m.Name.Producer,
		ContentType:  m.ContentType,
		Timestamp:    m.DueAt,
		Headers:      headers,
		Body:         m.Body,
	}
}

func keyOf(m *publish.Message) copyKey {
	return copyKey{name: m.Name, exchange: m.Exchange, routingKey: m.RoutingKey, attempt: int64(m.Attempt)}
}

func keyOfReturn(r *amqp.Return) copyKey {
	attempt, _ := r.Headers[publish.HeaderAttempt].(int64)
	return copyKey{
		name:     publish.Name{Producer: r.AppId, ID: r.MessageId},
		exchange: r.Exchange, routingKey: r.RoutingKey, attempt: attempt,
	}
}
