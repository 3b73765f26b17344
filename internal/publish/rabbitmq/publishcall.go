package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/publish/outcomes"
)

// publishCall is one call of Publish.
type publishCall struct {
	publisher *Publisher
	batch     []halfmsg.Publishing
	// sending ends when nothing more may be sent, answers when no answer is waited for any more.
	sending, answers context.Context
	// group waits for every message that will have an outcome.
	group    sync.WaitGroup
	outcomes *outcomes.Batch
}

// Publish sends a batch and hands over the broker's answers. See halfmsg.Publisher; messages of one batch may reach the
// broker in any order. Answers that take longer than a quarter of a second are handed over apart from the others.
func (p *Publisher) Publish(
	ctx context.Context, batch []halfmsg.Publishing, answered func(places []int, results []halfmsg.PublishResult),
) {
	c := &publishCall{publisher: p, batch: batch, outcomes: outcomes.New(len(batch))}
	if err := p.enter(); err != nil {
		for i := range batch {
			c.outcomes.Add(i, outcomes.Unsent(err))
		}
		c.outcomes.HandOver(answered)
		return
	}
	defer p.leave()
	sending, cancel := context.WithTimeout(ctx, p.config.ConfirmTimeout/2)
	defer cancel()
	answers, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.config.ConfirmTimeout)
	defer cancel()
	c.sending, c.answers = sending, answers
	// An exchange that keeps its messages waiting keeps no others waiting.
	for _, group := range byExchange(batch) {
		sent := make(chan sent, len(group))
		c.group.Go(func() {
			defer close(sent)
			for _, i := range group {
				c.dispatch(i, sent)
			}
		})
		c.group.Go(func() { c.collect(sent) })
	}
	c.outcomes.HandOver(answered)
	c.group.Wait()
}

// byExchange gathers the indexes of messages to the same exchange.
func byExchange(batch []halfmsg.Publishing) map[string][]int {
	groups := make(map[string][]int)
	for i := range batch {
		groups[batch[i].Exchange] = append(groups[batch[i].Exchange], i)
	}
	return groups
}

// routed is the part of a message that the table of routes reads.
func routed(m *halfmsg.Publishing) publish.Message {
	return publish.Message{
		Producer: m.Name.Producer, ID: m.Name.ID, Exchange: m.Exchange, RoutingKey: m.RoutingKey, Headers: m.Headers,
	}
}

// settle records the outcome of a message.
func (c *publishCall) settle(i int, result halfmsg.PublishResult) {
	m := routed(&c.batch[i])
	switch result.Outcome {
	case halfmsg.Acked, halfmsg.Refused:
		c.publisher.routes.Answered(&m)
	default:
		c.publisher.routes.Release(&m)
	}
	c.outcomes.Add(i, result)
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
	patience, cancel := context.WithTimeout(context.Background(), outcomes.HandOverEvery)
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
			c.group.Go(func() { c.finish(s) })
		}
	}
}

// finish waits for the answer to a message and settles the message.
func (c *publishCall) finish(s sent) {
	result := c.await(s.on, &c.batch[s.place], s.as, false)
	c.release()
	c.settle(s.place, result)
}

// dispatch sends one message, or settles the message unsent. It returns when the next message to the same exchange may
// follow.
func (c *publishCall) dispatch(i int, shared chan<- sent) {
	m := &c.batch[i]
	if err := check(m); err != nil {
		c.outcomes.Add(i, outcomes.Refused(err)) // no answer of the broker, so the routes learn nothing
		return
	}
	for {
		if _, _, err := c.publisher.state(); err != nil {
			c.settle(i, outcomes.Unsent(err))
			return
		}
		message := routed(m)
		decision := c.publisher.routes.Decide(&message)
		switch decision.State {
		case publish.Rejected:
			c.settle(i, outcomes.Refused(decision.Err))
			return
		case publish.Stalled:
			c.settle(i, outcomes.Unsent(decision.Err))
			return
		case publish.Isolated:
			c.group.Go(func() { c.settle(i, c.publishIsolated(m)) })
			return
		case publish.Probe:
			c.group.Go(func() {
				result := c.publishIsolated(m)
				c.publisher.routes.EndProbe(m.Exchange)
				c.settle(i, result)
			})
			return
		case publish.Shared:
			if c.publishShared(i, shared) {
				return
			}
		case publish.Pending:
			select {
			case <-decision.ProbeEnded:
			case <-c.sending.Done():
				c.settle(i, outcomes.Unsent(c.late()))
				return
			}
		}
	}
}

// publishShared sends a message on the shared channel and leaves the answer to collect. It is false when the channel
// was closed before: then the message may be isolated, and the routes must decide again.
func (c *publishCall) publishShared(i int, shared chan<- sent) bool {
	ch, err := c.admit()
	if err != nil {
		c.settle(i, outcomes.Unsent(err))
		return true
	}
	u, err := ch.publish(&c.batch[i])
	switch {
	case err == nil:
		shared <- sent{i, ch, u} // there is room for the whole group
		return true
	case errors.Is(err, amqp.ErrClosed):
		c.release()
		<-ch.ended
		c.publisher.retire(ch)
		return false
	default:
		c.release()
		c.settle(i, outcomes.Unsure(fmt.Errorf("write to the broker: %w", err)))
		return true
	}
}

// admit waits for a slot and a channel to send on. The caller must release the slot.
func (c *publishCall) admit() (*confirmChannel, error) {
	p := c.publisher
	for {
		ch, changed, err := p.state()
		if err != nil {
			return nil, err
		}
		slots := p.slots
		if ch == nil {
			slots = nil
		}
		select {
		case slots <- struct{}{}:
			return ch, nil
		case <-changed:
		case <-c.sending.Done():
			return nil, c.late()
		}
	}
}

func (c *publishCall) release() { <-c.publisher.slots }

// late says why nothing more is sent.
func (c *publishCall) late() error {
	return fmt.Errorf("not sent in time: %w", context.Cause(c.sending))
}

// await waits for the answer to a message. A channel that leaves messages without an answer is retired.
func (c *publishCall) await(
	ch *confirmChannel, m *halfmsg.Publishing, u *unconfirmed, isolated bool,
) halfmsg.PublishResult {
	select {
	case <-u.confirmation.Done():
		return ch.judge(u, isolated)
	default:
	}
	select {
	case <-u.confirmation.Done():
		return ch.judge(u, isolated)
	case <-c.answers.Done():
		if isolated || !ch.abandon(u) {
			c.publisher.retire(ch)
		}
		c.publisher.unanswered(m, u)
		return outcomes.Unsure(fmt.Errorf("no answer of the broker within %v", c.publisher.config.ConfirmTimeout))
	}
}

// unanswered records a message without an answer in time. A late acknowledgement ends the stall of the route: the
// broker was blocked or stood still, and the queue does confirm.
func (p *Publisher) unanswered(m *halfmsg.Publishing, u *unconfirmed) {
	message := routed(m)
	acknowledged := p.routes.Unanswered(&message)
	p.background.Go(func() {
		<-u.confirmation.Done() // at the latest when the channel is closed
		if u.confirmation.Acked() {
			acknowledged()
		}
	})
}
