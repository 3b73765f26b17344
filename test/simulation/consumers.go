package simulation

import (
	"context"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/faults"
)

const (
	exchange = "simulation"
	queue    = "simulation.inbox"
)

// consumer notes each copy in the ledger and acknowledges it. It connects again after each end of its connection.
type consumer struct {
	world *World
	host  *Host
	over  chan struct{}
}

// startConsumer declares the queue, and consumes until the world ends.
func startConsumer(w *World) (*consumer, error) {
	if err := w.onBroker(declareQueues); err != nil {
		return nil, err
	}
	c := &consumer{world: w, host: w.Network.Host("consumer", "10.3.0.1"), over: make(chan struct{})}
	go func() {
		defer close(c.over)
		for w.life.Err() == nil {
			if err := c.session(); err != nil {
				_ = sleep(w.life, 200*time.Millisecond)
			}
		}
	}()
	return c, nil
}

func (c *consumer) close() { <-c.over }

// onBroker does something at the broker, beside the network.
func (w *World) onBroker(do func(channel *amqp.Channel) error) error {
	conn, err := amqp.DialConfig("amqp://guest:guest@broker/", amqp.Config{Dial: w.Broker.Dial})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	return do(channel)
}

// declareQueues makes the exchange and the queues.
func declareQueues(channel *amqp.Channel) error {
	if err := channel.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		return err
	}
	for _, name := range []string{queue, effectQueue} {
		if _, err := channel.QueueDeclare(name, true, false, false, false, nil); err != nil {
			return err
		}
		if err := channel.QueueBind(name, "#", exchange, false, nil); err != nil {
			return err
		}
	}
	return nil
}

func (c *consumer) session() error {
	return c.world.consume(c.host, queue, func(d amqp.Delivery) error {
		c.world.got(d)
		return d.Ack(false)
	})
}

// consume consumes on one connection until the connection ends, or the world does. handle settles a delivery; its error
// ends the connection.
func (w *World) consume(host *Host, queue string, handle func(amqp.Delivery) error) error {
	conn, err := amqp.DialConfig("amqp://guest:guest@broker/", amqp.Config{
		Heartbeat: w.drawn.heartbeat,
		Dial: func(network, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(w.life, 5*time.Second)
			defer cancel()
			return host.Dial(ctx, network, brokerAddr)
		},
	})
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) }()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := channel.Qos(10, 0, false); err != nil {
		return err
	}
	deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for {
		select {
		case <-w.life.Done():
			return nil
		case d, open := <-deliveries:
			if !open {
				return amqp.ErrClosed
			}
			if err := handle(d); err != nil {
				return err
			}
		}
	}
}

// got notes a copy.
func (w *World) got(d amqp.Delivery) {
	headers := map[string]string{}
	attempt := 0
	for name, value := range d.Headers {
		switch v := value.(type) {
		case string:
			if name != publish.HeaderTrace && name != publish.HeaderKey {
				headers[name] = v
			}
		case int64:
			if name == publish.HeaderAttempt {
				attempt = int(v)
			}
		}
	}
	w.acts.got(d.AppId + "/" + d.MessageId)
	w.Ledger.Got(d.AppId+"/"+d.MessageId, faults.Copy{
		Content: faults.NewContent(d.Exchange, d.RoutingKey, headers, d.Body), Attempt: attempt, Redelivered: d.Redelivered,
	})
}
