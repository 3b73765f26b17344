package nats

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

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
	// group has the goroutines of the call.
	group    sync.WaitGroup
	answered *outcomes.Batch

	mu sync.Mutex
	// used are the connections that messages were sent on.
	used map[*connection]bool
	// expired is set when the confirm timeout has passed.
	expired atomic.Bool
}

// Publish sends a batch and hands over the streams' answers. See halfmsg.Publisher; messages of one batch to one stream
// are sent in their order. Answers that take longer than a quarter of a second are handed over apart from the others.
func (p *Publisher) Publish(
	ctx context.Context, batch []halfmsg.Publishing, answered func(places []int, results []halfmsg.PublishResult),
) {
	c := &publishCall{
		publisher: p, batch: batch, answered: outcomes.New(len(batch)), used: make(map[*connection]bool, 1),
	}
	end, err := p.enter()
	if err != nil {
		for i := range batch {
			c.answered.Add(i, outcomes.Unsent(err))
		}
		c.answered.HandOver(answered)
		return
	}
	defer end()
	sending, cancel := context.WithTimeout(ctx, p.config.ConfirmTimeout/2)
	defer cancel()
	answers, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.config.ConfirmTimeout)
	defer cancel()
	c.sending, c.answers = sending, answers
	defer context.AfterFunc(answers, c.expire)()
	// A stream that keeps its messages waiting keeps no others waiting.
	for _, group := range byStream(batch) {
		c.group.Go(func() {
			for _, i := range group {
				c.dispatch(i)
			}
		})
	}
	c.answered.HandOver(answered)
	c.group.Wait()
}

// byStream gathers the indexes of messages to the same stream.
func byStream(batch []halfmsg.Publishing) map[string][]int {
	groups := make(map[string][]int)
	for i := range batch {
		groups[batch[i].Exchange] = append(groups[batch[i].Exchange], i)
	}
	return groups
}

// routed is the part of a message that the table of routes reads. A stream answers for all its subjects or for none.
func routed(m *halfmsg.Publishing) publish.Message {
	return publish.Message{Producer: m.Name.Producer, ID: m.Name.ID, Exchange: m.Exchange}
}

// dispatch sends one message, or settles the message without.
func (c *publishCall) dispatch(i int) {
	p, m := c.publisher, toMessage(&c.batch[i])
	if err := m.Check(); err != nil {
		c.answered.Add(i, outcomes.Refused(err)) // no answer of a stream, so the routes learn nothing
		return
	}
	if err := p.streams.Refusal(m.Stream); err != nil {
		c.answered.Add(i, outcomes.Refused(err))
		return
	}
	if _, _, err := p.state(); err != nil {
		c.settle(i, outcomes.Unsent(err))
		return
	}
	message := routed(&c.batch[i])
	if decision := p.routes.DecideShared(&message); decision.State == publish.Stalled {
		c.settle(i, outcomes.Unsent(decision.Err))
		return
	}
	conn, err := c.admit()
	if err != nil {
		c.settle(i, outcomes.Unsent(err))
		return
	}
	c.mu.Lock()
	c.used[conn] = true
	c.mu.Unlock()
	conn.publish(m.NATS(), &sent{call: c, place: i})
}

// admit waits for a slot and a connection to send on. The slot is released with the fate of the message.
func (c *publishCall) admit() (*connection, error) {
	p := c.publisher
	for {
		conn, changed, err := p.state()
		if err == nil {
			err = c.late()
		}
		if err != nil {
			return nil, err
		}
		select {
		case p.slots <- struct{}{}:
			return conn, nil
		case <-changed:
		case <-c.sending.Done():
		}
	}
}

// late says why nothing more is sent; nil while messages are sent.
func (c *publishCall) late() error {
	if c.sending.Err() == nil {
		return nil
	}
	return fmt.Errorf("not sent in time: %w", context.Cause(c.sending))
}

// conclude settles a message that took a slot.
func (c *publishCall) conclude(s *sent, result halfmsg.PublishResult) {
	<-c.publisher.slots
	c.settle(s.place, result)
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
	c.answered.Add(i, result)
}

// untaken concludes a message that no server took: no copy is out.
func (c *publishCall) untaken(conn *connection, s *sent) {
	m := &c.batch[s.place]
	wrong, why := c.publisher.streams.Untaken(c.answers, conn.js, m.Exchange, subjectOf(m))
	if wrong {
		c.conclude(s, outcomes.Refused(why))
		return
	}
	c.conclude(s, outcomes.Unsent(why))
}

// expire settles the messages without an answer in time.
func (c *publishCall) expire() {
	c.expired.Store(true) // from here on nothing is added to the messages in flight
	c.mu.Lock()
	used := maps.Clone(c.used)
	c.mu.Unlock()
	for conn := range used {
		for _, s := range conn.expire(c, c.unanswered(conn)) {
			c.conclude(s, outcomes.Unsure(fmt.Errorf("no answer of the stream within %v", c.publisher.config.ConfirmTimeout)))
		}
	}
}

// unanswered records messages without an answer in time. A late acknowledgement ends the stall of the stream: the
// stream had no leader or the server stood still, and the stream does acknowledge.
func (c *publishCall) unanswered(conn *connection) func(place int) func() {
	p := c.publisher
	asked := make(map[string]bool)
	return func(place int) func() {
		m := routed(&c.batch[place])
		if !asked[m.Exchange] {
			asked[m.Exchange] = true
			p.background.Go(func() { p.streams.NoteSilence(context.WithoutCancel(c.answers), conn.js, m.Exchange) })
		}
		return p.routes.Unanswered(&m)
	}
}
