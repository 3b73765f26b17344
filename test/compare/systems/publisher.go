package systems

import (
	"context"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// publisher is the code that a team writes around River's workers: one channel that many workers publish on, mandatory
// and with confirms, opened again after a loss of the connection.
type publisher struct {
	url string

	mu   sync.Mutex
	open *confirming // nil before the first message and after a loss
}

var (
	errAway       = errors.New("the broker cannot be reached")
	errUnroutable = errors.New("the broker has no queue for the message")
	errNack       = errors.New("the broker refused the message, or the connection was lost")
)

// attemptHeader says how often a message was tried. A copy after a crash has a number above 1.
const attemptHeader = "attempt"

// publish returns nil when the broker has acknowledged the message and routed it to a queue.
func (p *publisher) publish(ctx context.Context, id, routingKey string, body []byte, attempt int) error {
	c, err := p.channel()
	if err != nil {
		return err
	}
	confirmation, err := c.channel.PublishWithDeferredConfirmWithContext(ctx, "", routingKey, true, false,
		amqp.Publishing{
			MessageId: id, ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: body,
			Headers: amqp.Table{attemptHeader: int64(attempt)},
		})
	if err != nil {
		return err
	}
	acked, err := confirmation.WaitContext(ctx)
	switch {
	case err != nil:
		return err
	case !acked:
		return errNack
	case c.wasReturned(id):
		return errUnroutable
	}
	return nil
}

// channel opens a connection where there is none.
func (p *publisher) channel() (*confirming, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open != nil && !p.open.channel.IsClosed() {
		return p.open, nil
	}
	p.closeConnection()
	var err error
	if p.open, err = openConfirming(p.url); err != nil {
		return nil, fmt.Errorf("%w: %w", errAway, err)
	}
	return p.open, nil
}

func (p *publisher) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeConnection()
}

func (p *publisher) closeConnection() {
	if p.open != nil {
		_ = p.open.connection.Close()
	}
	p.open = nil
}

// confirming is a channel with confirms, and the messages that the broker has returned on it.
type confirming struct {
	connection *amqp.Connection
	channel    *amqp.Channel

	mu       sync.Mutex
	returns  chan amqp.Return
	returned map[string]bool
}

func openConfirming(url string) (*confirming, error) {
	connection, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	c := &confirming{connection: connection, returned: map[string]bool{}}
	if c.channel, err = connection.Channel(); err == nil {
		err = c.channel.Confirm(false)
	}
	if err != nil {
		_ = connection.Close()
		return nil, err
	}
	// The broker returns a message before it acknowledges the message. No more returns than jobs can wait here.
	c.returns = c.channel.NotifyReturn(make(chan amqp.Return, maxWorkers))
	return c, nil
}

// wasReturned says whether the broker returned an acknowledged message, and forgets that.
func (c *confirming) wasReturned(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		select {
		case r, open := <-c.returns:
			if open {
				c.returned[r.MessageId] = true
				continue
			}
		default:
		}
		was := c.returned[id]
		delete(c.returned, id)
		return was
	}
}
