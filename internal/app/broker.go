package app

import (
	"context"
	"fmt"
	"net"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/embedded/amqpbroker"
	"github.com/msghandler/msghandler/internal/publish/rabbitmq"
)

// openPublisher starts the publisher. The publisher connects in the background: without a broker, messages are accepted
// and confirmed, and wait in Redis.
func (a *App) openPublisher(urls []string) (*rabbitmq.Publisher, error) {
	publisher, err := rabbitmq.New(rabbitmq.Config{
		URLs:           urls,
		ConfirmTimeout: a.settings.Send.ConfirmTimeout,
		Window:         a.settings.AMQP.Window,
		Logger:         a.logger,
	})
	if err != nil {
		return nil, fmt.Errorf("amqp.url: %w", err)
	}
	a.closeWith(closer{name: "publisher", close: publisher.Close})
	a.metrics.Broker(publisher.Ready)
	a.metrics.Queue("publish", publisher.InFlight)
	a.checks.set(checkRabbitMQ, func(context.Context) error { return publisher.Ready() })
	return publisher, nil
}

// amqpURLs returns the URLs of the broker. An embedded broker is started first.
func (a *App) amqpURLs() ([]string, error) {
	addr, is := config.Embedded(a.settings.AMQP.URLs[0])
	if !is {
		return a.settings.AMQP.URLs, nil
	}
	// The operator named the address, and may choose an address that other machines reach.
	broker := amqpbroker.New(amqpbroker.Config{AllowRemote: addr != "", Logger: a.logger})
	a.closeWith(closer{name: "embedded broker", close: func(context.Context) error { return broker.Close() }})
	addr, err := broker.Listen(anyPort(addr))
	if err != nil {
		return nil, fmt.Errorf("amqp.url: cannot start the embedded broker: %w", err)
	}
	if host, port, err := net.SplitHostPort(addr); err == nil && net.ParseIP(host).IsUnspecified() {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	url := "amqp://guest:guest@" + addr + "/"
	a.logger.Warn("the embedded broker is "+notDurable, "url", url)
	return []string{url}, nil
}
