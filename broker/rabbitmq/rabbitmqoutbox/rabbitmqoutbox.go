// Package rabbitmqoutbox sends a producer's local message table straight to RabbitMQ, without a coordinator: the plain
// outbox, with the same messages and the same consumers.
//
// A message is sent when the broker has acknowledged it and routed it to at least one queue. A message that the
// broker returns as unroutable or nacks is refused, and tried again after a delay. After the loss of a connection the
// messages in flight are sent once more, as the broker may or may not have them. Every copy after the first has
// a msghandler-attempt header above 1.
package rabbitmqoutbox

import (
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/producer/outbox/direct"
)

// Config says which broker. The URL is amqp://USER:PASSWORD@HOST:PORT/VHOST or amqps://..., or several of them, for the
// nodes of one cluster, separated by commas. The messages carry the Producer as their app_id.
type Config = direct.Config

// Sender is an outbox.Sender. A sender belongs to one relay.
type Sender = direct.Sender

// New returns a sender, which connects in the background. A batch waits for the broker's answers as long as its claim
// allows, a minute at most.
func New(config Config) (*Sender, error) { return direct.New(config, time.Minute, rabbitmq.New) }
