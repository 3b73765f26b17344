package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/kafka"
	"github.com/msghandler/msghandler/consumer/nats"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// deadLetters are the dead letters of a broker, as package consumer describes the methods.
type deadLetters interface {
	List(ctx context.Context, limit int) ([]consumer.Letter, error)
	Show(ctx context.Context, key string) (consumer.Letter, error)
	Count(ctx context.Context, keys ...string) (int, error)
	Replay(ctx context.Context, keys ...string) (int, error)
	ReplayOldest(ctx context.Context, limit int, keys ...string) (int, error)
	Discard(ctx context.Context, keys ...string) (int, error)
	DiscardOldest(ctx context.Context, limit int, keys ...string) (int, error)
}

// letterBrokers opens the dead letters of a queue, by the scheme of the broker's URL.
var letterBrokers = map[string]func(url, queue string) (deadLetters, error){
	"amqp":  rabbitMQLetters,
	"amqps": rabbitMQLetters,
	"kafka": kafkaLetters,
	"nats":  natsLetters,
	"tls":   natsLetters,
}

func rabbitMQLetters(url, queue string) (deadLetters, error) {
	return consumer.NewDeadLetters(url, nil, queue)
}

func kafkaLetters(url, topic string) (deadLetters, error) {
	return kafka.NewDeadLetters(url, nil, topic)
}

func natsLetters(url, stream string) (deadLetters, error) {
	return nats.NewDeadLetters(url, nil, stream)
}

// dlqBrokerFlags name the broker of dead letters.
type dlqBrokerFlags struct {
	Broker  string `xor:"broker" help:"The broker of this name in the configuration, brokers.NAME.url (default: amqp.url)." placeholder:"NAME"`
	URL     string `name:"url" xor:"broker" help:"The broker: amqp://, amqps://, kafka://, nats:// or tls://, with commas between the nodes of a cluster." placeholder:"URL"`
	AMQPURL string `name:"amqp.url" xor:"broker" help:"The same as --url, for RabbitMQ." placeholder:"URL"`
}

// open describes the dead letters of a queue; the first use connects.
func (f *dlqBrokerFlags) open(s *commandline.Session, queue string) (deadLetters, error) {
	url, source, err := f.find(s)
	if err != nil {
		return nil, err
	}
	scheme, _, _ := strings.Cut(url, "://")
	open, known := letterBrokers[scheme]
	if !known {
		return nil, fmt.Errorf("%s is not a URL of a broker; the schemes are %s; name the broker with --broker or --url, "+
			"or in the configuration", source, strings.Join(slices.Sorted(maps.Keys(letterBrokers)), ", "))
	}
	dead, err := open(url, queue)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return dead, nil
}

// find returns the URL of the broker, and the flag or key that holds the URL.
func (f *dlqBrokerFlags) find(s *commandline.Session) (url, source string, err error) {
	switch {
	case f.URL != "":
		return f.URL, "--url", nil
	case f.AMQPURL != "":
		return f.AMQPURL, "--amqp.url", nil
	}
	settings, err := s.Load(nil)
	if err != nil {
		return "", "", err
	}
	if f.Broker == "" {
		return strings.Join(settings.AMQP.URLs, ","), "amqp.url", nil
	}
	key := "brokers." + f.Broker + ".url"
	broker, known := settings.Brokers[f.Broker]
	if !known {
		return "", "", fmt.Errorf("--broker=%s: the configuration has no %s; set the key, or name one of the brokers [%s]",
			f.Broker, key, strings.Join(settings.BrokerNames(), ", "))
	}
	return broker.URL, key, nil
}
