package nats

import (
	"fmt"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// toMessage is the message for its stream.
func toMessage(m *publish.Message) natsconn.Message {
	return natsconn.Message{
		Producer: m.Name.Producer, ID: m.Name.ID, Stream: m.Exchange, Subject: subjectOf(m), ContentType: m.ContentType,
		Headers: m.Headers, Trace: m.Trace, Body: m.Body, Time: m.DueAt, Attempt: m.Attempt,
		Publication: m.Publication,
	}
}

// subjectOf is the routing key. The copy of a DEAD message has the routing key of the message, which only the stream of
// the message can take: no two streams of an account share a subject. So the copy goes to STREAM.ROUTING_KEY.
func subjectOf(m *publish.Message) string {
	if m.Dead && m.RoutingKey != "" {
		return m.Exchange + "." + m.RoutingKey
	}
	return m.RoutingKey
}

// resultOf is the outcome of a message by its fate.
func resultOf(fate natsconn.Fate, cause error) publish.Result {
	switch fate {
	case natsconn.Stored:
		assert.Always(cause == nil, "a stream has stored an acknowledged message")
		return publish.Result{Outcome: publish.Acked}
	case natsconn.Refused:
		return publish.Refused.Because(cause)
	case natsconn.Unavailable:
		return publish.Unsent.Because(fmt.Errorf("%w: %w", publish.ErrBlocked, cause))
	default:
		return publish.Unsure.Because(cause)
	}
}
