package kafka

import (
	"cmp"
	"context"
	"fmt"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// publishCall is one call of Publish.
type publishCall struct {
	*publish.Call
	publisher *Publisher
}

// Publish sends a batch and hands over the cluster's answers. See publish.Publisher. Answers that take longer than a
// quarter of a second are handed over apart from the others.
func (p *Publisher) Publish(
	ctx context.Context, batch []publish.Message, answered func(places []int, results []publish.Result),
) {
	p.Life.Call(ctx, batch, answered, func(call *publish.Call) (send func([]int), end func()) {
		c := &publishCall{Call: call, publisher: p}
		return c.send, func() {}
	})
}

// send sends the messages to one topic. Messages of a refused batch of records follow one by one, in their order.
func (c *publishCall) send(places []int) {
	t := &topicCall{call: c, waiting: make(map[int]bool), answered: make(chan struct{}, 1)}
	for _, i := range places {
		t.dispatch(i)
	}
	t.await(c.Answers, func() bool { return len(t.waiting) == 0 })
	for _, i := range t.abandon() {
		c.publishAlone(i)
	}
}

// record is a message for the client. The copy number may be higher than that of the message. The ordering key stands
// in for an empty routing key, so that a chain is in a single partition.
func record(m *publish.Message, attempt int) kafkaconn.Message {
	return kafkaconn.Message{
		ID: m.Name.ID, Producer: m.Name.Producer, Topic: m.Exchange,
		Key: cmp.Or(m.RoutingKey, m.Headers[publish.HeaderKey]), ContentType: m.ContentType,
		Trace: m.Trace, Headers: m.Headers, Body: m.Body, Time: m.DueAt, Attempt: attempt,
	}
}

// publishAlone sends a message whose batch of records was refused in a batch of its own. The copy is flagged: a broker
// may have the first one, as the client fails more batches than the refused one.
func (c *publishCall) publishAlone(i int) {
	m := &c.Batch[i]
	producer, _, err := c.publisher.State()
	if err == nil {
		err = c.Late()
	}
	if err != nil {
		c.Add(i, publish.Unsure.Because(err))
		return
	}
	again := record(m, m.Attempt+1)
	answer := producer.WriteAlone(c.Answers, again.Record())
	c.publisher.learn(m, answer)
	c.Add(i, repeated(answer))
}

// repeated is the outcome of a message that was written twice. Only an acknowledgement or a refusal of the message
// itself says something about the first copy, too: a message that is refused alone was in no batch that is stored.
func repeated(answer kafkaconn.Answer) publish.Result {
	switch answer.Fate {
	case kafkaconn.Stored, kafkaconn.BatchRefused:
		return resultOf(answer)
	default:
		return publish.Unsure.Because(answer.Err)
	}
}

// resultOf is the outcome of a message that was written once.
func resultOf(answer kafkaconn.Answer) publish.Result {
	switch answer.Fate {
	case kafkaconn.Stored:
		assert.Always(answer.Err == nil, "Kafka has stored an acknowledged message")
		return publish.Result{Outcome: publish.Acked}
	case kafkaconn.TopicRefused, kafkaconn.BatchRefused:
		return publish.Refused.Because(answer.Err)
	case kafkaconn.Unwritten:
		return publish.Unsent.Because(answer.Err)
	case kafkaconn.AccessRefused:
		return publish.Unsent.Because(fmt.Errorf("%w: %w", publish.ErrBlocked, answer.Err))
	default:
		return publish.Unsure.Because(answer.Err)
	}
}
