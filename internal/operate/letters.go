// Package operate is the desk of operators, under the command line and the console: it reads filters as people write
// them, and changes many messages call by call. It also reads and changes consumers' dead letters on any broker, for
// coordinators and for msghandler dlq --direct.
package operate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconsumer"
	"github.com/msghandler/msghandler/broker/nats/natsconsumer"
	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
)

// DeadLetters are the dead letters of a broker, as package consumer describes the methods.
type DeadLetters interface {
	ListSelected(ctx context.Context, s consumer.Selection) ([]consumer.Letter, error)
	Visit(ctx context.Context, visit func(*consumer.Letter) bool) error
	Depth(ctx context.Context) (int, error)
	Oldest(ctx context.Context) (consumer.Letter, error)
	ReplaySelected(ctx context.Context, s consumer.Selection) (int, error)
	DiscardSelected(ctx context.Context, s consumer.Selection) (int, error)
}

// brokers opens the dead letters of a queue, by the scheme of the broker's URL.
var brokers = map[string]func(url, queue string) (DeadLetters, error){
	"amqp": rabbitMQ, "amqps": rabbitMQ, "kafka": onKafka, "nats": onNATS, "tls": onNATS,
}

func rabbitMQ(url, queue string) (DeadLetters, error) {
	return rabbitmqconsumer.NewDeadLetters(url, nil, queue)
}

func onKafka(url, topic string) (DeadLetters, error) {
	return kafkaconsumer.NewDeadLetters(url, nil, topic)
}

func onNATS(url, stream string) (DeadLetters, error) {
	return natsconsumer.NewDeadLetters(url, nil, stream)
}

// open describes the dead letters of a queue, a topic or a stream; the first use connects. The error never quotes the
// URL.
func open(url, queue string) (DeadLetters, error) {
	describe, known := brokers[scheme(url)]
	if !known {
		return nil, fmt.Errorf("this is not a URL of a broker; the schemes are %s; name the broker with another URL",
			strings.Join(slices.Sorted(maps.Keys(brokers)), ", "))
	}
	return describe(url, queue)
}

func scheme(url string) string {
	of, _, _ := strings.Cut(url, "://")
	return of
}
