// Package brokers opens the publisher of any kind of broker by the scheme of its URL, for the coordinator and for the
// doctor.
package brokers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/broker/kafka"
	"github.com/msghandler/msghandler/broker/nats"
	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// Deduplicator is a publisher whose broker knows repeats by their ids, and drops them.
type Deduplicator interface {
	// Duplicates is how many messages the broker had already when they were published.
	Duplicates() int64
}

// kind is a kind of broker.
type kind struct {
	// system is the broker's name in traces, as OpenTelemetry has it.
	system string
	open   func(publish.Config) (publish.Client, error)
}

// kinds are the kinds of brokers by the schemes of their URLs. internal/config checks the URLs of the same schemes.
var kinds = map[string]kind{
	"amqp":  {"rabbitmq", opener(rabbitmq.New)},
	"amqps": {"rabbitmq", opener(rabbitmq.New)},
	"kafka": {"kafka", opener(kafka.New)},
	"nats":  {"nats", opener(nats.New)},
	"tls":   {"nats", opener(nats.New)},
}

// Schemes are the schemes of URLs that Open takes, sorted.
func Schemes() []string { return slices.Sorted(maps.Keys(kinds)) }

// System is the name of the broker's kind in traces, such as rabbitmq.
func System(url string) string { return kinds[schemeOf(url)].system }

// Open starts a publisher, which connects in the background.
func Open(config publish.Config) (publish.Client, error) {
	k, known := kinds[schemeOf(config.URL)]
	if !known {
		return nil, fmt.Errorf("is not a URL of a broker; the schemes are %s", strings.Join(Schemes(), ", "))
	}
	return k.open(config)
}

func schemeOf(url string) string {
	scheme, _, _ := strings.Cut(url, "://")
	return scheme
}

var _ Deduplicator = (*nats.Publisher)(nil)

// opener is the opener of a kind of publishers.
func opener[P publish.Client](open func(publish.Config) (P, error)) func(publish.Config) (publish.Client, error) {
	return func(config publish.Config) (publish.Client, error) {
		p, err := open(config)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}
