package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/address"
)

// examineTimeout is how long a broker is given to acknowledge one publishing.
const examineTimeout = 3 * time.Second

// ErrNotPermitted says that the user may not publish to the default exchange.
var ErrNotPermitted = errors.New("the user may not publish to the default exchange")

// Health is how a broker looks to a publisher.
type Health struct {
	// Server is the product and its version, as it says itself.
	Server string
	// Age says whether msghandler supports the version.
	Age Age
	// Host is the host:port that was connected to.
	Host string
	// Trouble is why a message could not be published now; nil: it could.
	Trouble error
	// Exchanges holds, of the exchanges that were asked about, those that are missing or out of reach, and why.
	Exchanges map[string]error
}

// Examine connects to the first broker that answers, as a Publisher does, publishes one message that no queue can get, and
// looks whether exchanges are there. It fails when no broker can be connected to; the error has the last one's reason.
func Examine(ctx context.Context, config Config, exchanges ...string) (Health, error) {
	k, node, err := reach(ctx, config)
	if err != nil {
		return Health{}, err
	}
	defer k.close()
	defer context.AfterFunc(ctx, k.connection.HangUp)()
	return k.examine(ctx, node, exchanges), nil
}

// reach connects to the first broker that answers.
func reach(ctx context.Context, config Config) (k *link, node address.AMQP, err error) {
	nodes, err := parseNodes(config.URLs)
	if err != nil {
		return nil, node, err
	}
	config = config.complete()
	for _, node = range nodes {
		if k, err = dial(ctx, node, config); err == nil {
			return k, node, nil
		}
		err = fmt.Errorf("%s: %w", node.Host, err)
	}
	return nil, node, err
}

// Depths tells how many messages wait in queues, on a connection of its own: an alarm may hold up the one that publishes.
// Queues that are not there are left out. It ends with the context, whether the broker answers or not.
func Depths(ctx context.Context, config Config, queues ...string) (map[string]int, error) {
	k, _, err := reach(ctx, config)
	if err != nil {
		return nil, err
	}
	defer k.close()
	defer context.AfterFunc(ctx, k.connection.HangUp)()
	depths := map[string]int{}
	for _, name := range queues {
		channel, err := k.channel()
		if err != nil {
			return nil, err
		}
		queue, err := channel.QueueDeclarePassive(name, true, false, false, false, nil)
		var refused *amqp.Error
		switch {
		case err == nil:
			depths[name] = queue.Messages
			_ = channel.Close()
		case errors.As(err, &refused) && refused.Code == amqp.NotFound: // It closes the channel; the connection stays.
		default:
			return nil, fmt.Errorf("look at the queue %s: %w", name, err)
		}
	}
	return depths, nil
}

func (k *link) examine(ctx context.Context, node address.AMQP, exchanges []string) Health {
	about := k.connection.Properties
	h := Health{Server: serverOf(about), Age: ageOf(about), Host: node.Host, Exchanges: map[string]error{}}
	h.Trouble = k.probe(ctx)
	for _, name := range slices.Compact(slices.Sorted(slices.Values(exchanges))) {
		if err := k.find(name); err != nil {
			h.Exchanges[name] = err
		}
	}
	return h
}

// probe publishes to the default exchange, with a routing key that is no queue's name: an alarm holds it up, and nobody
// gets it.
func (k *link) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	channel, err := k.channel()
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil {
		return fmt.Errorf("confirms: %w", err)
	}
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	confirmed, err := channel.PublishWithDeferredConfirmWithContext(ctx, "", "msghandler.doctor."+rand.Text(), false, false,
		amqp.Publishing{})
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	select {
	case <-confirmed.Done():
		if !confirmed.Acked() {
			return refusal(closed)
		}
		return nil
	case alarm := <-k.blocked:
		return fmt.Errorf("%w: %s", ErrBlocked, alarm.Reason)
	case <-k.done:
		return k.lost
	case <-ctx.Done():
		return fmt.Errorf("no acknowledgement within %v", examineTimeout)
	}
}

// refusal says why a publishing was not acknowledged; when the broker closed the channel for it, that has been told by now.
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

// find looks for an exchange, on a channel of its own: the broker closes it when there is none.
func (k *link) find(exchange string) error {
	channel, err := k.channel()
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
func (k *link) channel() (*amqp.Channel, error) {
	defer k.connection.Guard(openTimeout)()
	channel, err := k.connection.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	return channel, nil
}
