package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/app/letters"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/config"
)

// dlqBrokerFlags name the broker of dead letters.
type dlqBrokerFlags struct {
	Broker  string `xor:"broker" help:"The broker of this name in the configuration, brokers.NAME.url (default: amqp.url)." placeholder:"NAME"`
	URL     string `name:"url" xor:"broker" help:"The broker: amqp://, amqps://, kafka://, nats:// or tls://, with commas between the nodes of a cluster." placeholder:"URL"`
	AMQPURL string `name:"amqp.url" xor:"broker" help:"The same as --url, for RabbitMQ." placeholder:"URL"`
}

// letterBox is dead letters, and why one of them may not be replayed to its exchange and routing key.
type letterBox struct {
	letters.DeadLetters
	mayPublish letters.Rule
}

// open describes the dead letters of a queue; the first use connects.
func (f *dlqBrokerFlags) open(s *commandline.Session, queue string) (letterBox, error) {
	settings, err := s.Load(nil)
	if err != nil {
		return letterBox{}, err
	}
	url, source, of, err := f.find(&settings, queue)
	if err != nil {
		return letterBox{}, err
	}
	dead, err := letters.Open(url, of)
	if err != nil {
		return letterBox{}, fmt.Errorf("%s: %w", source, err)
	}
	broker := cmp.Or(f.Broker, settings.DeadLetters[queue].Broker)
	return letterBox{dead, app.LetterRule(func() *config.Config { return &settings }, queue, broker)}, nil
}

// find returns the URL of the broker, the flag or key that holds the URL, and the queue. The name of an entry of
// dead_letters means its queue, on each broker.
func (f *dlqBrokerFlags) find(settings *config.Config, name string) (url, source, queue string, err error) {
	queue = name
	entry, named := settings.DeadLetters[name]
	if named {
		queue = entry.Queue
	}
	switch {
	case f.URL != "":
		return f.URL, "--url", queue, nil
	case f.AMQPURL != "":
		return f.AMQPURL, "--amqp.url", queue, nil
	case named && f.Broker == "":
		url, source = settings.LettersURL(name)
		return url, source, queue, nil
	case f.Broker == "":
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
