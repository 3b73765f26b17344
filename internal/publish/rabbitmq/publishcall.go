package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// publishCall is one call of Publish.
type publishCall struct {
	publisher *Publisher
	batch     []halfmsg.Publishing
	// sending ends when nothing more may be sent, answers when no answer is waited for any more.
	sending, answers context.Context
	// group waits for every message that will have an outcome.
	group    sync.WaitGroup
	outcomes *outcomes
}

// Publish sends a batch and hands over the broker's answers. See halfmsg.Publisher; messages of one batch may reach the
// broker in any order. Answers that take longer than a quarter of a second are handed over apart from the others.
func (p *Publisher) Publish(
	ctx context.Context, batch []halfmsg.Publishing, answered func(places []int, results []halfmsg.PublishResult),
) {
	c := &publishCall{publisher: p, batch: batch, outcomes: newOutcomes(len(batch))}
	if err := p.enter(); err != nil {
		for i := range batch {
			c.outcomes.add(i, unsent(err))
		}
		c.outcomes.handOver(answered)
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
		c.group.Go(func() {
			for _, i := range group {
				c.dispatch(i)
			}
		})
	}
	c.outcomes.handOver(answered)
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
	c.outcomes.add(i, result)
}

// dispatch sends one message, or settles the message unsent. It returns when the next message to the same exchange may
// follow.
func (c *publishCall) dispatch(i int) {
	m := &c.batch[i]
	if err := check(m); err != nil {
		c.outcomes.add(i, refused(err)) // no answer of the broker, so the routes learn nothing
		return
	}
	for {
		if _, _, err := c.publisher.state(); err != nil {
			c.settle(i, unsent(err))
			return
		}
		message := routed(m)
		decision := c.publisher.routes.Decide(&message)
		switch decision.State {
		case publish.Rejected:
			c.settle(i, refused(decision.Err))
			return
		case publish.Stalled:
			c.settle(i, unsent(decision.Err))
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
			if c.publishShared(i) {
				return
			}
		case publish.Pending:
			select {
			case <-decision.ProbeEnded:
			case <-c.sending.Done():
				c.settle(i, unsent(c.late()))
				return
			}
		}
	}
}

// publishShared sends a message on the shared channel and leaves the answer to a goroutine. It is false when the
// channel was closed before: then the message may be isolated, and the routes must decide again.
func (c *publishCall) publishShared(i int) bool {
	ch, err := c.admit()
	if err != nil {
		c.settle(i, unsent(err))
		return true
	}
	m := &c.batch[i]
	u, err := ch.publish(m)
	switch {
	case err == nil:
		c.group.Go(func() {
			result := c.await(ch, m, u, false)
			c.release()
			c.settle(i, result)
		})
		return true
	case errors.Is(err, amqp.ErrClosed):
		c.release()
		<-ch.ended
		c.publisher.retire(ch)
		return false
	default:
		c.release()
		c.settle(i, unsure(fmt.Errorf("write to the broker: %w", err)))
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
		return unsure(fmt.Errorf("no answer of the broker within %v", c.publisher.config.ConfirmTimeout))
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

// handOverEvery is how long outcomes wait for later outcomes of the batch, so that a batch without slow messages is
// handed over as a whole.
const handOverEvery = 250 * time.Millisecond

// outcomes gathers the outcomes of a batch.
type outcomes struct {
	mu sync.Mutex
	// places and results are the outcomes that were not handed over yet; missing counts messages without an outcome.
	places  []int
	results []halfmsg.PublishResult
	missing int
	// complete is closed when no outcome is missing.
	complete chan struct{}
}

func newOutcomes(n int) *outcomes {
	o := &outcomes{
		places: make([]int, 0, n), results: make([]halfmsg.PublishResult, 0, n), missing: n,
		complete: make(chan struct{}),
	}
	if n == 0 {
		close(o.complete)
	}
	return o
}

// add takes the outcome of the message at a place, once.
func (o *outcomes) add(place int, result halfmsg.PublishResult) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.places, o.results = append(o.places, place), append(o.results, result)
	if o.missing--; o.missing == 0 {
		close(o.complete)
	}
}

// take removes the outcomes that were not handed over yet.
func (o *outcomes) take() (places []int, results []halfmsg.PublishResult) {
	o.mu.Lock()
	defer o.mu.Unlock()
	places, results = o.places, o.results
	o.places, o.results = nil, nil
	return places, results
}

// handOver hands over all outcomes as they come, and returns when no outcome is missing. The first group may be
// empty: the caller learns in time that the rest takes longer.
func (o *outcomes) handOver(answered func(places []int, results []halfmsg.PublishResult)) {
	tick := time.NewTicker(handOverEvery)
	defer tick.Stop()
	for first, complete := true, false; !complete; first = false {
		select {
		case <-o.complete:
			complete = true
		case <-tick.C:
		}
		if places, results := o.take(); first || len(places) > 0 {
			answered(places, results)
		}
	}
}
