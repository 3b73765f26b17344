// Package natsoutbox sends a producer's local message table straight to NATS JetStream, without a coordinator: the
// plain outbox, with the same messages and the same consumers.
//
// The exchange of a message is the stream, and the routing key the subject. A message is sent when the stream has sent
// a PubAck. A message to an unknown stream, or a message that the stream does not take, is refused, and tried again
// after a delay. After the loss of a connection the messages in flight are sent once more, as the stream may or may not
// have them: within the stream's window JetStream drops the second copy by its Nats-Msg-Id, PRODUCER/ID. Every copy
// after the first has a msghandler-attempt header above 1.
package natsoutbox

import (
	"time"

	"github.com/msghandler/msghandler/broker/nats"
	"github.com/msghandler/msghandler/producer/outbox/direct"
)

// Config says which servers. The URL is nats://USER:PASSWORD@HOST:PORT,HOST:PORT or tls://...; the options after the ?
// are token, credsfile, cacertfile, certfile, keyfile, skip_verify, tls and inbox_prefix.
type Config = direct.Config

// Sender is an outbox.Sender. A sender belongs to one relay.
type Sender = direct.Sender

// answerTimeout bounds the wait for PubAcks. A stream without a leader answers nothing for some seconds, and must not
// hold its batch for the whole time of the claim.
const answerTimeout = 10 * time.Second

// New returns a sender, which connects in the background.
func New(config Config) (*Sender, error) { return direct.New(config, answerTimeout, nats.New) }
