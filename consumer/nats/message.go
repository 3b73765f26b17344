package nats

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// newMessage is a delivery in the form of package consumer. Retries counts every delivery before this one.
func newMessage(m jetstream.Msg, meta *jetstream.MsgMetadata, name string) *consumer.Message {
	headers := m.Headers()
	attempt, _ := strconv.Atoi(headers.Get(publish.HeaderAttempt))
	timestamp, err := time.Parse(time.RFC3339, headers.Get(publish.HeaderTimestamp))
	if err != nil {
		timestamp = meta.Timestamp
	}
	before := int(meta.NumDelivered) - 1 //nolint:gosec // deliveries are few
	c := &consumer.Message{
		ID: headers.Get(publish.HeaderID), Producer: headers.Get(publish.HeaderProducer), Attempt: max(attempt, 1),
		Redelivered: before > 0, Deliveries: before, Retries: before, Queue: meta.Stream, Consumer: name,
		Exchange: meta.Stream, RoutingKey: m.Subject(), ContentType: headers.Get(publish.HeaderContentType),
		Headers: make(map[string]string, len(headers)), Body: m.Data(), Timestamp: timestamp,
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
