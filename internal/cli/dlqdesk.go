package cli

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
)

// dlqDirectFlags have a command work on the broker itself.
type dlqDirectFlags struct {
	Direct  bool   `help:"Work on the broker itself, with the rights of its URL: without a coordinator, its roles and its audit."`
	Broker  string `xor:"broker" help:"With --direct: the broker of this name in the configuration, brokers.NAME.url (default: amqp.url)." placeholder:"NAME"`
	URL     string `name:"url" xor:"broker" help:"With --direct: the broker, amqp://, amqps://, kafka://, nats:// or tls://, with commas between the nodes of a cluster." placeholder:"URL"`
	AMQPURL string `name:"amqp.url" xor:"broker" help:"The same as --url, for RabbitMQ." placeholder:"URL"`
}

// check refuses flags that name a broker without --direct.
func (f *dlqDirectFlags) check() error {
	for _, flag := range []struct{ name, value string }{
		{"--broker", f.Broker}, {"--url", f.URL}, {"--amqp.url", f.AMQPURL},
	} {
		if flag.value != "" && !f.Direct {
			return commandline.UsageError{Err: fmt.Errorf("%s names a broker, and the command asks a coordinator, which knows "+
				"its own; add --direct to work on the broker itself, or leave %s out", flag.name, flag.name)}
		}
	}
	return nil
}

// most is how many letters a page and a change have at most.
func (f *dlqDirectFlags) most() (page, change int) {
	if f.Direct {
		return math.MaxInt32, math.MaxInt32
	}
	return maxPage, maxLetters
}

// maxLetters is how many letters a call to a coordinator changes.
const maxLetters = 10_000

// open describes the dead letters of a queue; the first use connects.
func (f *dlqDirectFlags) open(s *commandline.Session, queue string) (*operate.LocalDesk, error) {
	settings, err := s.Load(nil)
	if err != nil {
		return nil, err
	}
	source, err := f.find(&settings, queue)
	if err != nil {
		return nil, err
	}
	source.MayPublish = app.LetterRule(func() *config.Config { return &settings }, queue, source.Broker)
	return operate.NewLocalDesk(source)
}

// find describes the queue. The name of an entry of dead_letters means its queue, on each broker.
func (f *dlqDirectFlags) find(settings *config.Config, name string) (operate.Source, error) {
	source := operate.Source{Name: name, Queue: name}
	entry, named := settings.DeadLetters[name]
	if named {
		source.Queue = entry.Queue
	}
	source.Broker = cmp.Or(f.Broker, entry.Broker)
	switch {
	case f.URL != "":
		source.URL, source.Key = f.URL, "--url"
	case f.AMQPURL != "":
		source.URL, source.Key = f.AMQPURL, "--amqp.url"
	case named && f.Broker == "":
		source.URL, source.Key = settings.LettersURL(name)
	case f.Broker == "":
		source.URL, source.Key = strings.Join(settings.AMQP.URLs, ","), "amqp.url"
	default:
		broker, known := settings.Brokers[f.Broker]
		source.URL, source.Key = broker.URL, "brokers."+f.Broker+".url"
		if !known {
			return source, fmt.Errorf("--broker=%s: the configuration has no %s; set the key, or name one of the brokers [%s]",
				f.Broker, source.Key, strings.Join(settings.BrokerNames(), ", "))
		}
	}
	return source, nil
}

// explain turns the error of a broker into an error for people.
func (f *dlqDirectFlags) explain(err error) error {
	if err == nil {
		return nil
	}
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("cannot reach the broker: is it running? Name another with --url or --broker (%w)", err)
	}
	if strings.Contains(err.Error(), "NOT_FOUND - no queue") {
		return fmt.Errorf("the broker has no such queue in this virtual host: look at rabbitmqctl list_queues; "+
			"a consumer declares its dead-letter queue at its start (%w)", err)
	}
	if errors.Is(err, halfmsg.ErrNoDeadLetter) {
		return commandline.NotFoundError{Err: err}
	}
	return err
}
