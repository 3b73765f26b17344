package bare

import (
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// publisher publishes persistent, mandatory messages with confirms on a channel.
type publisher struct {
	connection *amqp.Connection
	channel    *amqp.Channel
	// sending keeps batches together, which makes the writes larger.
	sending sync.Mutex
}

func openPublisher(url string) (*publisher, error) {
	connection, err := amqp.Dial(url)
	if err != nil {
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	channel, err := connection.Channel()
	if err == nil {
		err = channel.Confirm(false)
	}
	if err != nil {
		_ = connection.Close()
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	return &publisher{connection: connection, channel: channel}, nil
}

// publish publishes messages and waits for their acknowledgements.
func (p *publisher) publish(messages []*message) error {
	confirmations, err := p.send(messages)
	for _, c := range confirmations {
		if !c.Wait() && err == nil {
			err = errors.New("the broker did not take a message")
		}
	}
	return err
}

func (p *publisher) send(messages []*message) ([]*amqp.DeferredConfirmation, error) {
	confirmations := make([]*amqp.DeferredConfirmation, 0, len(messages))
	p.sending.Lock()
	defer p.sending.Unlock()
	for _, m := range messages {
		c, err := p.channel.PublishWithDeferredConfirm(m.exchange, m.routingKey, true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: m.id, Body: m.body,
		})
		if err != nil {
			return confirmations, fmt.Errorf("publish: %w", err)
		}
		confirmations = append(confirmations, c)
	}
	return confirmations, nil
}

func (p *publisher) close() { _ = p.connection.Close() }
