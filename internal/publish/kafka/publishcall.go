package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
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
	outcomes         *outcomes.Batch
}

// Publish sends a batch and hands over the cluster's answers. See halfmsg.Publisher. Answers that take longer than a
// quarter of a second are handed over apart from the others.
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
	var topics sync.WaitGroup
	for _, places := range byTopic(batch) {
		// A topic that keeps its messages waiting keeps no others waiting.
		topics.Go(func() { c.publish(places) })
	}
	c.outcomes.HandOver(answered)
	topics.Wait()
}

// byTopic gathers the places of messages to the same topic, in their order.
func byTopic(batch []halfmsg.Publishing) map[string][]int {
	groups := make(map[string][]int)
	for i := range batch {
		groups[batch[i].Exchange] = append(groups[batch[i].Exchange], i)
	}
	return groups
}

// publish sends the messages to one topic. Messages of a refused batch of records follow one by one, in their order.
func (c *publishCall) publish(places []int) {
	t := &topicCall{call: c, answers: make(chan placed, len(places)), waiting: make(map[int]bool)}
	for _, i := range places {
		t.dispatch(i)
	}
	t.await(c.answers, func() bool { return len(t.waiting) == 0 })
	t.abandon()
	for _, i := range slices.Sorted(slices.Values(t.suspects)) {
		c.publishAlone(i)
	}
}

// routed is the part of a message that the table of routes reads. A topic is one route: the client chooses the
// partition, so a key does not tell which messages a broker holds up.
func routed(m *halfmsg.Publishing) publish.Message {
	return publish.Message{Producer: m.Name.Producer, ID: m.Name.ID, Exchange: m.Exchange}
}

// message is a message for the client. The copy number may be higher than that of the publishing.
func message(m *halfmsg.Publishing, attempt int) kafkaconn.Message {
	return kafkaconn.Message{
		ID: m.Name.ID, Producer: m.Name.Producer, Topic: m.Exchange, Key: m.RoutingKey, ContentType: m.ContentType,
		Trace: m.Trace, Headers: m.Headers, Body: m.Body, Time: m.DueAt, Attempt: attempt,
	}
}

// publishAlone sends a message whose batch of records was refused in a batch of its own. The copy is flagged: a broker
// may have the first one, as the client fails more batches than the refused one.
func (c *publishCall) publishAlone(i int) {
	m := &c.batch[i]
	producer, err := c.publisher.current()
	if err == nil && c.sending.Err() != nil {
		err = c.late()
	}
	if err != nil {
		c.outcomes.Add(i, outcomes.Unsure(err))
		return
	}
	again := message(m, m.Attempt+1)
	answer := producer.WriteAlone(c.answers, again.Record())
	route := routed(m)
	c.publisher.learn(&route, answer)
	c.outcomes.Add(i, repeated(answer))
}

// repeated is the outcome of a message that was written twice. Only an acknowledgement or a refusal of the message
// itself says something about the first copy, too: a message that is refused alone was in no batch that is stored.
func repeated(answer kafkaconn.Answer) halfmsg.PublishResult {
	switch answer.Fate {
	case kafkaconn.Stored, kafkaconn.BatchRefused:
		return result(answer)
	default:
		return outcomes.Unsure(answer.Err)
	}
}

// late says why nothing more is sent.
func (c *publishCall) late() error {
	return fmt.Errorf("not sent in time: %w", context.Cause(c.sending))
}

// result is the outcome of a message that was written once.
func result(answer kafkaconn.Answer) halfmsg.PublishResult {
	switch answer.Fate {
	case kafkaconn.Stored:
		return outcomes.Acked()
	case kafkaconn.TopicRefused, kafkaconn.BatchRefused:
		return outcomes.Refused(answer.Err)
	case kafkaconn.Unwritten:
		return outcomes.Unsent(answer.Err)
	case kafkaconn.AccessRefused:
		return outcomes.Unsent(fmt.Errorf("%w: %w", ErrBlocked, answer.Err))
	default:
		return outcomes.Unsure(answer.Err)
	}
}
