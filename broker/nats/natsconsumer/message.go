package natsconsumer

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// newMessage is a delivery in the form of package consumer. Retries counts every delivery before this one.
func newMessage(m jetstream.Msg, meta *jetstream.MsgMetadata, name string) *consumer.Message {
	before := int(meta.NumDelivered) - 1 //nolint:gosec // deliveries are few
	c := readMessage(m.Headers(), m.Data(), meta.Timestamp)
	c.Redelivered, c.Deliveries, c.Retries = before > 0, before, before
	c.Queue, c.Consumer, c.Exchange, c.RoutingKey = meta.Stream, name, meta.Stream, m.Subject()
	return c
}

// readMessage reads the message of a record of JetStream that was stored at a time.
func readMessage(headers nats.Header, body []byte, stored time.Time) *consumer.Message {
	timestamp, ok := deadletter.ParseTime(headers.Get(publish.HeaderTimestamp))
	if !ok {
		timestamp = deadletter.Time(stored)
	}
	c := &consumer.Message{
		ID: headers.Get(publish.HeaderID), Producer: headers.Get(publish.HeaderProducer),
		Attempt:     max(deadletter.Count(headers.Get(publish.HeaderAttempt)), 1),
		ContentType: headers.Get(publish.HeaderContentType), Headers: make(map[string]string, len(headers)), Body: body,
		Timestamp: timestamp,
	}
	for key := range headers {
		if !brokers(key) && !strings.HasPrefix(key, "msghandler-") && key != publish.HeaderContentType {
			c.Headers[key] = headers.Get(key)
		}
	}
	return c
}

// brokers reports whether JetStream gives a header its meaning.
func brokers(key string) bool { return strings.HasPrefix(key, "Nats-") }
