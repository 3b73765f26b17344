// Package kafkaoutbox sends a producer's local message table straight to Kafka, without a coordinator: the plain
// outbox, with the same messages and the same consumers.
//
// The exchange of a message is the topic, and the routing key is the key of the record. A message is sent when all
// in-sync replicas have the record. A message that the cluster does not take, as for a missing topic, is refused, and
// tried again after a delay. A message without an answer is sent once more, as a broker may have it. Every copy after
// the first has a msghandler-attempt header above 1.
package kafkaoutbox

import (
	"time"

	"github.com/msghandler/msghandler/broker/kafka"
	"github.com/msghandler/msghandler/producer/outbox/direct"
)

// Config says which cluster. The URL is kafka://USER:PASSWORD@HOST:PORT,HOST:PORT with options: tls, ca, cert, key,
// skip_verify, sasl (plain, scram-sha-256, scram-sha-512), client_id and max_message_bytes. The messages carry the
// Producer in the header msghandler-producer.
type Config = direct.Config

// Sender is an outbox.Sender. A sender belongs to one relay.
type Sender = direct.Sender

// answerTimeout bounds the wait for the cluster's answers. A broker may take half of it for a request: one that hangs
// must not keep its partitions for longer than their next leader needs.
const answerTimeout = 10 * time.Second

// New returns a sender, which connects in the background.
func New(config Config) (*Sender, error) { return direct.New(config, answerTimeout, kafka.New) }
