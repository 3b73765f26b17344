package rabbitmq

import (
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// isolatedChannels is how many messages may travel isolated at once. More would help only where so many exchanges at
// once have queues without answers. One stalled route must leave room for others.
const isolatedChannels = 2 * publish.MaxHeaderKinds

// probePatience is how long a probe may go without an answer before other messages to its exchange follow. The broker
// rejects a message at once; a longer wait is for a queue that does not confirm.
const probePatience = time.Second

// publishIsolated sends a message on a channel without other messages, and waits for the answer.
func (c *publishCall) publishIsolated(m *publish.Message) publish.Result {
	p := c.publisher
	var ch *confirmChannel
	select {
	case ch = <-p.isolated:
	case <-c.Sending.Done():
		return publish.Unsent.Because(c.Late())
	}
	defer func() { p.isolated <- ch }()
	if err := p.Routes.Rejection(m.Exchange); err != nil {
		return publish.Refused.Because(err) // another isolated message has found the rejection in the meantime
	}
	var result publish.Result
	ch, result = c.publishOn(ch, m)
	p.learn(m, result)
	return result
}

// publishOn sends a message on an isolated channel, or on a new one where the channel is not usable, and returns the
// channel for the next message.
func (c *publishCall) publishOn(ch *confirmChannel, m *publish.Message) (*confirmChannel, publish.Result) {
	if _, err := c.publisher.Admit(c.Call); err != nil {
		return ch, publish.Unsent.Because(err)
	}
	defer c.Release()
	ch, err := c.publisher.isolatedChannel(ch)
	if err != nil {
		return ch, publish.Unsent.Because(err)
	}
	u, err := ch.publish(m)
	switch {
	case err == nil:
		patience := time.NewTimer(probePatience)
		defer patience.Stop()
		select {
		case <-u.confirmation.Done():
		case <-c.Answers.Done():
		case <-patience.C:
			c.publisher.Routes.Presume(m.Exchange)
		}
		return ch, c.await(ch, m, u, true)
	case errors.Is(err, amqp.ErrClosed):
		return nil, publish.Unsent.Because(err)
	default:
		return nil, unwritten(err)
	}
}

// isolatedChannel returns the channel if the channel is usable on the present connection, or a new one. While nothing
// can be sent it keeps the channel.
func (p *Publisher) isolatedChannel(ch *confirmChannel) (*confirmChannel, error) {
	obstacle := p.Ready()
	connection := p.connection.Load() // there is one, as the publisher was ready before
	switch {
	case obstacle != nil:
		return ch, obstacle
	case ch != nil && ch.connection == connection && ch.usable():
		return ch, nil
	}
	return connection.open(1, nil)
}

// learn takes the answer to an isolated message as the broker's answer about the exchange.
func (p *Publisher) learn(m *publish.Message, result publish.Result) {
	if result.Outcome != publish.Acked && result.Outcome != publish.Refused {
		return
	}
	p.Routes.EndIsolation(m)
	var closed *amqp.Error
	switch {
	case !errors.As(result.Cause, &closed): // an ack, a nack or a return
		p.Routes.Accept(m.Exchange)
	case amqpconn.RejectsExchange(closed):
		p.Routes.Reject(m.Exchange, closed)
	}
}
