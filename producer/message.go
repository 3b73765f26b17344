package producer

import (
	"bytes"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Message is the event for the other services. The coordinator checks each field, and its error names a refused
// field.
type Message struct {
	// ID is the service's own business number: 1 to 128 bytes of [A-Za-z0-9._:~-], the first a letter or digit.
	// Consumers deduplicate by it.
	ID string
	// Broker is the broker to publish to, by its name in the coordinators' configuration (brokers.NAME). Empty: the
	// default broker.
	Broker string
	// Exchange and RoutingKey say where to publish. The empty exchange is RabbitMQ's default exchange. On Kafka they are
	// topic and record key, on NATS JetStream stream and subject.
	Exchange   string
	RoutingKey string
	Body       []byte
	// ContentType is sent on as the AMQP property.
	ContentType string
	// Headers are sent on as AMQP headers: at most 32, 16 KiB in all.
	Headers map[string]string
	// OrderingKey has the broker acknowledge the messages of this producer with the same key in the order in which their
	// half messages were stored: 1 to 128 bytes as in ID. It is the order of the business only where one business of a
	// key runs at a time. Delay must be zero then. Empty: no order.
	OrderingKey string
	// Delay is how long after the commit the message is published, at most 30 days.
	Delay time.Duration
	// EarlierCopies is how many copies may have been handed over before, by calls that the coordinator may have forgotten:
	// for a relay of one's own. Consumers get the message with a higher msghandler-attempt.
	EarlierCopies int
}

// State is where a message stands.
type State = pb.State

// The states of a message.
const (
	// StatePending: stored; whether the business committed is not known yet.
	StatePending = pb.State_STATE_PENDING
	// StateSendable: the business committed; to be published, perhaps after its delay.
	StateSendable = pb.State_STATE_SENDABLE
	// StateDone: the broker has the message.
	StateDone = pb.State_STATE_DONE
	// StateRolledBack: the business did not commit; removed.
	StateRolledBack = pb.State_STATE_ROLLED_BACK
	// StateAbandoned: no verdict on the business was found; kept for an operator, or a late Submit.
	StateAbandoned = pb.State_STATE_ABANDONED
	// StateDead: the broker refused the message up to the limit; kept for an operator.
	StateDead = pb.State_STATE_DEAD
)

// parseState reads a state's name as in error details, in the spelling of the API or of operators.
func parseState(name string) State {
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "STATE_") {
		name = "STATE_" + name
	}
	return State(pb.State_value[name])
}

// maxEarlierCopies is the most copies that coordinators take. A relay counts a claim each few seconds while the
// coordinator is away, and none of its messages may be refused for that.
const maxEarlierCopies = 1_000_000

// onWire is the message as the API has it. Invalid UTF-8 is refused here, because it would make the whole batch fail.
func (m *Message) onWire() (*pb.Message, *Error) {
	for field, text := range m.texts {
		if !utf8.ValidString(text) {
			return nil, &Error{
				Op: opSendHalf, ID: strings.ToValidUTF8(m.ID, "?"), Code: codes.InvalidArgument,
				Text: "message." + field + " is not valid UTF-8", kind: ErrRejected,
			}
		}
	}
	// Body and headers are copied: a caller whose context ends may use its own again while the batch is still on its
	// way.
	wire := &pb.Message{
		Id: m.ID, Broker: m.Broker, Exchange: m.Exchange, RoutingKey: m.RoutingKey, ContentType: m.ContentType,
		Body: bytes.Clone(m.Body), Headers: maps.Clone(m.Headers), OrderingKey: m.OrderingKey,
	}
	wire.EarlierCopies = uint32(min(max(0, m.EarlierCopies), maxEarlierCopies))
	if m.Delay != 0 {
		wire.Delay = durationpb.New(m.Delay)
	}
	return wire, nil
}

// texts walks the fields that must be UTF-8.
func (m *Message) texts(yield func(field, text string) bool) {
	for _, f := range [][2]string{
		{"id", m.ID},
		{"broker", m.Broker},
		{"exchange", m.Exchange},
		{"routing_key", m.RoutingKey},
		{"content_type", m.ContentType},
		{"ordering_key", m.OrderingKey},
	} {
		if !yield(f[0], f[1]) {
			return
		}
	}
	for key, value := range m.Headers {
		if !yield("headers", key) || !yield("headers", value) {
			return
		}
	}
}
