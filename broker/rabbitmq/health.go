package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// examineTimeout bounds the wait for the acknowledgement of the test message.
const examineTimeout = 3 * time.Second

// ErrNotPermitted says that the user may not publish to the default exchange.
var ErrNotPermitted = errors.New("the user may not publish to the default exchange")

// Health is how a broker looks to a publisher.
type Health struct {
	// Server is the product and its version, as the broker names them.
	Server string
	// Age says whether msghandler supports the version.
	Age Age
	// Host is the host:port of the node.
	Host string
	// Trouble is why a message could not be published now; nil if a message could.
	Trouble error
	// Exchanges names the exchanges that are missing or out of reach, and why.
	Exchanges map[string]error
}

// Examine connects to the first node that answers, as a Publisher does. It publishes one message that no queue can
// get, and looks for exchanges. Examine fails when no node can be connected to; the error has the reason of the last
// node.
func Examine(ctx context.Context, config Config, exchanges ...string) (Health, error) {
	c, node, err := reach(ctx, config)
	if err != nil {
		return Health{}, err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.conn.HangUp)()
	return c.examine(ctx, node, exchanges), nil
}

// reach connects to the first node that answers.
func reach(ctx context.Context, config Config) (c *connection, node address.AMQP, err error) {
	nodes, err := parseNodes(config.URL)
	if err != nil {
		return nil, node, err
	}
	config = config.Complete()
	for _, node = range nodes {
		if c, err = dial(ctx, node, config, new(lifecycle.Group)); err == nil {
			return c, node, nil
		}
		err = fmt.Errorf("%s: %w", node.Host, err)
	}
	return nil, node, err
}

// Depths counts the messages in queues, on a connection of its own: an alarm may hold up the publisher's connection.
// Missing queues are left out. Depths ends with the context, whether the broker answers or not.
func Depths(ctx context.Context, config Config, queues ...string) (map[string]int, error) {
	c, _, err := reach(ctx, config)
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.conn.HangUp)()
	depths := map[string]int{}
	for _, name := range queues {
		channel, err := c.channel()
		if err != nil {
			return nil, err
		}
		queue, err := channel.QueueDeclarePassive(name, true, false, false, false, nil)
		var refused *amqp.Error
		switch {
		case err == nil:
			depths[name] = queue.Messages
			_ = channel.Close()
		case errors.As(err, &refused) && refused.Code == amqp.NotFound: // It closes the channel alone.
		default:
			return nil, fmt.Errorf("look at the queue %s: %w", name, err)
		}
	}
	return depths, nil
}

func (c *connection) examine(ctx context.Context, node address.AMQP, exchanges []string) Health {
	about := c.conn.Properties
	h := Health{Server: serverOf(about), Age: ageOf(about), Host: node.Host, Exchanges: map[string]error{}}
	h.Trouble = c.publishTest(ctx)
	for _, name := range slices.Compact(slices.Sorted(slices.Values(exchanges))) {
		if err := c.find(name); err != nil {
			h.Exchanges[name] = err
		}
	}
	return h
}

// publishTest publishes to the default exchange with a routing key that is no queue's name: an alarm holds the
// message up, and no queue gets the message.
func (c *connection) publishTest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	channel, err := c.channel()
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil {
		return fmt.Errorf("confirms: %w", err)
	}
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	noQueue := "msghandler.doctor." + rand.Text()
	confirmed, err := channel.PublishWithDeferredConfirmWithContext(ctx, "", noQueue, false, false, amqp.Publishing{})
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	select {
	case <-confirmed.Done():
		if !confirmed.Acked() {
			return refusal(closed)
		}
		return nil
	case alarm := <-c.blocked:
		return blocked(alarm.Reason)
	case <-c.ended:
		return c.loss
	case <-ctx.Done():
		return fmt.Errorf("no acknowledgement within %v", examineTimeout)
	}
}

// refusal says why a message was not acknowledged. If the broker closed the channel, the reason is in closed by now.
func refusal(closed <-chan *amqp.Error) error {
	select {
	case why := <-closed:
		if why != nil && why.Code == amqp.AccessRefused {
			return fmt.Errorf("%w: %w", ErrNotPermitted, why)
		}
		if why != nil {
			return why
		}
	default:
	}
	return errors.New("the broker refused a message")
}

// find looks for an exchange, on a channel of its own: the broker closes the channel when the exchange is missing.
func (c *connection) find(exchange string) error {
	channel, err := c.channel()
	if err != nil {
		return err
	}
	err = channel.ExchangeDeclarePassive(exchange, amqp.ExchangeTopic, true, false, false, false, nil)
	if err == nil {
		err = channel.Close()
	}
	return err
}

// channel opens a channel within openTimeout.
func (c *connection) channel() (*amqp.Channel, error) {
	defer c.conn.Guard(openTimeout)()
	channel, err := c.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	return channel, nil
}
