package rabbitmq

import (
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/publish/outcomes"
)

// isolatedChannels is how many messages may travel isolated at once. More would help only where so many exchanges at
// once have queues without answers. One stalled route must leave room for others.
const isolatedChannels = 2 * publish.MaxHeaderKinds

// probePatience is how long a probe may go without an answer before other messages to its exchange follow. The broker
// rejects a message at once; a longer wait is for a queue that does not confirm.
const probePatience = time.Second

// publishIsolated sends a message on a channel without other messages, and waits for the answer.
func (c *publishCall) publishIsolated(m *halfmsg.Publishing) halfmsg.PublishResult {
	p := c.publisher
	var ch *confirmChannel
	select {
	case ch = <-p.isolated:
	case <-c.sending.Done():
		return outcomes.Unsent(c.late())
	}
	defer func() { p.isolated <- ch }()
	if err := p.routes.Rejection(m.Exchange); err != nil {
		return outcomes.Refused(err) // another isolated message has found the rejection in the meantime
	}
	var result halfmsg.PublishResult
	ch, result = c.publishOn(ch, m)
	p.learn(m, result)
	return result
}

// publishOn sends a message on an isolated channel, or on a new one where the channel is not usable, and returns the
// channel for the next message.
func (c *publishCall) publishOn(ch *confirmChannel, m *halfmsg.Publishing) (*confirmChannel, halfmsg.PublishResult) {
	if _, err := c.admit(); err != nil {
		return ch, outcomes.Unsent(err)
	}
	defer c.release()
	ch, err := c.publisher.isolatedChannel(ch)
	if err != nil {
		return ch, outcomes.Unsent(err)
	}
	u, err := ch.publish(m)
	switch {
	case err == nil:
		patience := time.NewTimer(probePatience)
		defer patience.Stop()
		select {
		case <-u.confirmation.Done():
		case <-c.answers.Done():
		case <-patience.C:
			c.publisher.routes.Presume(m.Exchange)
		}
		return ch, c.await(ch, m, u, true)
	case errors.Is(err, amqp.ErrClosed):
		return nil, outcomes.Unsent(err)
	default:
		return nil, outcomes.Unsure(fmt.Errorf("write to the broker: %w", err))
	}
}

// isolatedChannel returns the channel if the channel is usable on the present connection, or a new one. While nothing
// can be sent it keeps the channel.
func (p *Publisher) isolatedChannel(ch *confirmChannel) (*confirmChannel, error) {
	p.mu.Lock()
	connection, obstacle := p.connection, p.obstacle()
	p.mu.Unlock()
	switch {
	case obstacle != nil:
		return ch, obstacle
	case ch != nil && ch.connection == connection && ch.usable():
		return ch, nil
	}
	return connection.open(1, nil)
}

// learn takes the answer to an isolated message as the broker's answer about the exchange.
func (p *Publisher) learn(m *halfmsg.Publishing, result halfmsg.PublishResult) {
	if result.Outcome != halfmsg.Acked && result.Outcome != halfmsg.Refused {
		return
	}
	message := routed(m)
	p.routes.EndIsolation(&message)
	var closed *amqp.Error
	switch {
	case !errors.As(result.Cause, &closed): // an ack, a nack or a return
		p.routes.Accept(m.Exchange)
	case amqpconn.RejectsExchange(closed):
		p.routes.Reject(m.Exchange, closed)
	}
}
