package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

// publishCall is one call of Publish.
type publishCall struct {
	*publish.Call
	publisher *Publisher
}

// Publish sends a batch and hands over the broker's answers. See publish.Publisher; messages of one batch may reach the
// broker in any order. Answers that take longer than a quarter of a second are handed over apart from the others.
func (p *Publisher) Publish(
	ctx context.Context, batch []publish.Message, answered func(places []int, results []publish.Result),
) {
	p.Life.Call(ctx, batch, answered, func(call *publish.Call) (send func([]int), end func()) {
		c := &publishCall{Call: call, publisher: p}
		return c.send, func() {
			if connection := p.connection.Load(); connection != nil && call.Failed() {
				connection.conn.HangUp() // its unconfirmed messages may be in disorder, and a return could miss its message
			}
		}
	})
}

// send sends the messages to one exchange.
func (c *publishCall) send(places []int) {
	shared := make(chan sent, len(places))
	defer close(shared)
	c.Go(func() { c.collect(shared) })
	for _, i := range places {
		c.dispatch(i, shared)
	}
}

// sent is a message on the shared channel.
type sent struct {
	place int
	on    *confirmChannel
	as    *unconfirmed
}

// collect waits for the answers to the messages on the shared channel. A goroutine for each message would cost more
// than the answer. So one waits for all, until an answer takes long: each message without an answer then gets its own.
func (c *publishCall) collect(messages <-chan sent) {
	patience, cancel := context.WithTimeout(context.Background(), publish.HandOverEvery)
	defer cancel()
	for s := range messages {
		select {
		case <-s.as.confirmation.Done():
			c.finish(s)
			continue
		default: // an answer that is there counts, also when the time is over
		}
		select {
		case <-s.as.confirmation.Done():
			c.finish(s)
		case <-patience.Done():
			c.Go(func() { c.finish(s) })
		}
	}
}

// finish waits for the answer to a message and settles the message.
func (c *publishCall) finish(s sent) {
	result := c.await(s.on, &c.Batch[s.place], s.as, false)
	c.Release()
	c.Settle(s.place, result)
}

// dispatch sends one message, or settles the message unsent. It returns when the next message to the same exchange may
// follow.
func (c *publishCall) dispatch(i int, shared chan<- sent) {
	p, m := c.publisher, &c.Batch[i]
	if err := check(m); err != nil {
		c.Add(i, publish.Refused.Because(err)) // no answer of the broker, so the routes learn nothing
		return
	}
	for {
		switch p.Decide(c.Call, i) {
		case publish.Isolated:
			c.Go(func() { c.Settle(i, c.publishIsolated(m)) })
			return
		case publish.Probe:
			c.Go(func() {
				defer p.Routes.EndProbe(m.Exchange)
				c.Settle(i, c.publishIsolated(m))
			})
			return
		case publish.Shared:
			if c.publishShared(i, shared) {
				return
			}
		default: // settled
			return
		}
	}
}

// publishShared sends a message on the shared channel and leaves the answer to collect. It is false when the channel
// was closed before: then the message may be isolated, and the routes must decide again.
func (c *publishCall) publishShared(i int, shared chan<- sent) bool {
	ch, err := c.publisher.Admit(c.Call)
	if err != nil {
		c.Settle(i, publish.Unsent.Because(err))
		return true
	}
	u, err := ch.publish(&c.Batch[i])
	switch {
	case err == nil:
		shared <- sent{i, ch, u} // there is room for the whole group
		return true
	case errors.Is(err, amqp.ErrClosed):
		c.Release()
		<-ch.ended
		c.publisher.retire(ch)
		return false
	default:
		c.Release()
		c.Settle(i, unwritten(err))
		return true
	}
}

// unwritten is the result of a message whose write failed: a copy may be out.
func unwritten(err error) publish.Result {
	return publish.Unsure.Because(fmt.Errorf("write to the broker: %w", err))
}

// await waits for the answer to a message. A channel that leaves messages without an answer is retired.
func (c *publishCall) await(ch *confirmChannel, m *publish.Message, u *unconfirmed, isolated bool) publish.Result {
	select {
	case <-u.confirmation.Done():
		return ch.judgeConfirmed(u, isolated)
	default:
	}
	select {
	case <-u.confirmation.Done():
		return ch.judgeConfirmed(u, isolated)
	case <-c.Answers.Done():
		if isolated || !ch.abandon(u) {
			c.publisher.retire(ch)
		}
		c.publisher.noteUnanswered(m, u)
		return c.Unanswered()
	}
}

// noteUnanswered records a message without an answer in time. A late acknowledgement ends the stall of the route: the
// broker was blocked or stood still, and the queue does confirm.
func (p *Publisher) noteUnanswered(m *publish.Message, u *unconfirmed) {
	acknowledged := p.Routes.Unanswered(m)
	p.Background.Go(func() {
		<-u.confirmation.Done() // at the latest when the channel is closed
		if u.confirmation.Acked() {
			acknowledged()
		}
	})
}
