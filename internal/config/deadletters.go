package config

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// DeadLetters is a queue of consumers' dead letters.
type DeadLetters struct {
	// Queue is the queue of RabbitMQ, the topic of Kafka or the stream of NATS.
	Queue string `key:"queue" default:"NAME" check:"letters"`
	// Broker is the name of the broker with the queue; empty for the default broker.
	Broker string `key:"broker" check:"broker name"`
	// Exchanges are globs on the exchanges that letters may be replayed to, as Policy.Exchanges. None: a letter may go
	// where the policy lets a message of its producer go.
	Exchanges []string `key:"exchanges" check:"name glob"`
}

func checkLettersQueue(s string) error {
	if s == "" {
		return errors.New("is empty; name a queue, a topic or a stream")
	}
	return nil
}

// DeadLetterNames are the names of the queues of dead letters, sorted.
func (c *Config) DeadLetterNames() []string { return slices.Sorted(maps.Keys(c.DeadLetters)) }

// LettersURL is the URL of the broker with the dead letters of an entry of DeadLetters, and the key that holds the URL.
func (c *Config) LettersURL(name string) (url, key string) {
	if d := c.DeadLetters[name]; d.Broker != "" && d.Broker != halfmsg.DefaultBroker {
		return c.Brokers[d.Broker].URL, "brokers." + d.Broker + ".url"
	}
	return strings.Join(c.AMQP.URLs, ","), "amqp.url"
}

// checkDeadLetters refuses queues of brokers that the configuration does not name.
func (l *loading) checkDeadLetters() {
	for _, name := range l.config.DeadLetterNames() {
		d, key := l.config.DeadLetters[name], "dead_letters."+name
		_, known := l.config.Brokers[d.Broker]
		if !known && d.Broker != "" && d.Broker != halfmsg.DefaultBroker {
			l.relation(key+".broker", "names no broker of this configuration: set brokers.%s.url", d.Broker)
		}
	}
}
