package app

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/msghandler/msghandler/internal/app/brokers"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/expiry"
	"github.com/msghandler/msghandler/internal/ground/publish"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// openBroker is a broker with its publisher.
type openBroker struct {
	// name is empty for the default broker.
	name, url, deadLetters string
	publish.Client
}

// openBrokers starts the publisher of each broker, the default one first. Publishers connect in the background: without
// a broker, its messages are accepted and confirmed, and wait in Redis.
func (a *App) openBrokers() (opened []openBroker, err error) {
	all := []openBroker{{url: strings.Join(a.settings.AMQP.URLs, ","), deadLetters: a.settings.Send.DeadLetterExchange}}
	for _, name := range a.settings.BrokerNames() {
		b := a.settings.Brokers[name]
		all = append(all, openBroker{name: name, url: b.URL, deadLetters: b.DeadLetterExchange})
	}
	for _, b := range all {
		b.Client, err = brokers.Open(publish.Config{
			URL: b.url, ConfirmTimeout: a.settings.Send.ConfirmTimeout, Logger: a.loggerOf(b.name),
			Present: a.brokerURL(b.name, b.url), Dial: a.process.network.Dial,
			Handshake: a.doors.certificates.Servers(keyOfBroker(b.name), looks[brokers.System(b.url)]).Handshake,
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", keyOfBroker(b.name), err)
		}
		a.closeWith(closer{name: queueOf("publisher", b.name), close: b.Close})
		a.metrics.Broker(b.name, b.Ready)
		if d, deduplicates := b.Client.(brokers.Deduplicator); deduplicates {
			a.metrics.Duplicates(b.name, d.Duplicates)
		}
		a.metrics.Queue(queueOf("publish", b.name), b.InFlight)
		a.checks.set(cause.BrokerSubject(b.name), func(context.Context) error { return b.Ready() })
		opened = append(opened, b)
	}
	return opened, nil
}

// looks are how brokers are reached for a look at their certificates.
var looks = map[string]expiry.Dial{
	"rabbitmq": expiry.DialTLS, "kafka": expiry.DialTLS, "nats": expiry.DialNATS,
}

// loggerOf names the broker in the lines of its publisher.
func (a *App) loggerOf(broker string) *slog.Logger {
	if broker == "" {
		return a.logger
	}
	return a.logger.With("broker", broker)
}

// keyOfBroker is the key of the configuration with the broker's URL.
func keyOfBroker(name string) string {
	if name == "" {
		return "amqp.url"
	}
	return "brokers." + name + ".url"
}

// queueOf names a queue of a broker.
func queueOf(queue, broker string) string {
	if broker == "" {
		return queue
	}
	return queue + "/" + broker
}

// brokerStats tells how the brokers do.
func (a *App) brokerStats(opened []openBroker, waiting func(broker string) int) func() []*adminv1.BrokerStats {
	return func() []*adminv1.BrokerStats {
		all := make([]*adminv1.BrokerStats, len(opened))
		for i, b := range opened {
			all[i] = &adminv1.BrokerStats{
				Name: b.name, Kind: brokers.System(b.url), QueuedMessages: int64(waiting(b.name)),
			}
			if err := b.Ready(); err != nil {
				all[i].Problem = err.Error()
			}
		}
		return all
	}
}
