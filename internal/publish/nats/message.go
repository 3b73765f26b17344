package nats

import (
	"fmt"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/publish/outcomes"
)

// headerDeadReason marks the copy of a dead message, as the send loop makes it.
const headerDeadReason = "msghandler-dead-reason"

// toMessage is the message for its stream.
func toMessage(m *halfmsg.Publishing) natsconn.Message {
	return natsconn.Message{
		Producer: m.Name.Producer, ID: m.Name.ID, Stream: m.Exchange, Subject: subjectOf(m), ContentType: m.ContentType,
		Headers: m.Headers, Trace: m.Trace, Body: m.Body, Time: m.DueAt, Attempt: m.Attempt,
		Publication: m.Publication,
	}
}

// subjectOf is the routing key. The copy of a dead message has the routing key of the message, which only the stream of
// the message can take: no two streams of an account share a subject. So the copy goes to STREAM.ROUTING_KEY.
func subjectOf(m *halfmsg.Publishing) string {
	if m.Headers[headerDeadReason] != "" && m.RoutingKey != "" {
		return m.Exchange + "." + m.RoutingKey
	}
	return m.RoutingKey
}

// resultOf is the outcome of a message by its fate.
func resultOf(fate natsconn.Fate, cause error) halfmsg.PublishResult {
	switch fate {
	case natsconn.Stored:
		return outcomes.Acked()
	case natsconn.Refused:
		return outcomes.Refused(cause)
	case natsconn.Unavailable:
		return outcomes.Unsent(fmt.Errorf("%w: %w", ErrBlocked, cause))
	default:
		return outcomes.Unsure(cause)
	}
}
