package cli

import (
	"fmt"
	"strings"

	"github.com/msghandler/msghandler/internal/app/letters"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// dlqBrokerFlags name the broker of dead letters.
type dlqBrokerFlags struct {
	Broker  string `xor:"broker" help:"The broker of this name in the configuration, brokers.NAME.url (default: amqp.url)." placeholder:"NAME"`
	URL     string `name:"url" xor:"broker" help:"The broker: amqp://, amqps://, kafka://, nats:// or tls://, with commas between the nodes of a cluster." placeholder:"URL"`
	AMQPURL string `name:"amqp.url" xor:"broker" help:"The same as --url, for RabbitMQ." placeholder:"URL"`
}

// open describes the dead letters of a queue; the first use connects.
func (f *dlqBrokerFlags) open(s *commandline.Session, queue string) (letters.DeadLetters, error) {
	url, source, queue, err := f.find(s, queue)
	if err != nil {
		return nil, err
	}
	dead, err := letters.Open(url, queue)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return dead, nil
}

// find returns the URL of the broker, the flag or key that holds the URL, and the queue. Without a flag, the name of
// an entry of dead_letters means its queue.
func (f *dlqBrokerFlags) find(s *commandline.Session, queue string) (url, source, of string, err error) {
	switch {
	case f.URL != "":
		return f.URL, "--url", queue, nil
	case f.AMQPURL != "":
		return f.AMQPURL, "--amqp.url", queue, nil
	}
	settings, err := s.Load(nil)
	if err != nil {
		return "", "", "", err
	}
	if entry, named := settings.DeadLetters[queue]; named && f.Broker == "" {
		url, source = settings.LettersURL(queue)
		return url, source, entry.Queue, nil
	}
	if f.Broker == "" {
		return strings.Join(settings.AMQP.URLs, ","), "amqp.url", queue, nil
	}
	key := "brokers." + f.Broker + ".url"
	broker, known := settings.Brokers[f.Broker]
	if !known {
		return "", "", "", fmt.Errorf("--broker=%s: the configuration has no %s; set the key, "+
			"or name one of the brokers [%s]", f.Broker, key, strings.Join(settings.BrokerNames(), ", "))
	}
	return broker.URL, key, queue, nil
}
