// Package brokers opens the publisher of any kind of broker by the scheme of its URL, for the coordinator and for the
// doctor.
package brokers

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/publish/kafka"
	"github.com/msghandler/msghandler/internal/publish/nats"
	"github.com/msghandler/msghandler/internal/publish/rabbitmq"
)

// Publisher is a publisher with a life.
type Publisher interface {
	halfmsg.Publisher
	// InFlight is how many messages the broker has not answered yet.
	InFlight() int
	// Close waits until the broker has answered, or the context ends, and disconnects.
	Close(ctx context.Context) error
}

// Deduplicator is a Publisher whose broker knows repeats by their ids, and drops them.
type Deduplicator interface {
	// Duplicates is how many messages the broker had already when they were published.
	Duplicates() int64
}

// Config is what every kind of publisher needs. Every field is required.
type Config struct {
	// URL is the address of the broker. Several addresses stand in it as its kind takes them.
	URL            string
	ConfirmTimeout time.Duration
	Window         int
	Logger         *slog.Logger
}

// kind is a kind of broker.
type kind struct {
	// system is the broker's name in traces, as OpenTelemetry has it.
	system string
	open   func(Config) (Publisher, error)
}

// kinds are the kinds of brokers by the schemes of their URLs. internal/config checks the URLs of the same schemes.
var kinds = map[string]kind{
	"amqp":  {"rabbitmq", openRabbitMQ},
	"amqps": {"rabbitmq", openRabbitMQ},
	"kafka": {"kafka", openKafka},
	"nats":  {"nats", openNATS},
	"tls":   {"nats", openNATS},
}

// Schemes are the schemes of URLs that Open takes, sorted.
func Schemes() []string { return slices.Sorted(maps.Keys(kinds)) }

// System is the name of the broker's kind in traces, such as rabbitmq.
func System(url string) string { return kinds[schemeOf(url)].system }

// Open starts a publisher, which connects in the background.
func Open(config Config) (Publisher, error) {
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

func openRabbitMQ(c Config) (Publisher, error) {
	return rabbitmq.New(rabbitmq.Config{
		URLs: strings.Split(c.URL, ","), ConfirmTimeout: c.ConfirmTimeout, Window: c.Window, Logger: c.Logger,
	})
}

func openKafka(c Config) (Publisher, error) {
	return kafka.New(kafka.Config{URL: c.URL, ConfirmTimeout: c.ConfirmTimeout, Window: c.Window, Logger: c.Logger})
}

func openNATS(c Config) (Publisher, error) {
	return nats.New(nats.Config{URL: c.URL, ConfirmTimeout: c.ConfirmTimeout, Window: c.Window, Logger: c.Logger})
}
