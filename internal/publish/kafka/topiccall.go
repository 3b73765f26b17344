package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/publish/outcomes"
)

// probePatience is how long a probe may go without an answer before other messages to its topic follow. The cluster
// refuses a topic soon; a longer wait is for a broker that does not answer.
const probePatience = time.Second

// topicCall is the part of a call of Publish for one topic. One goroutine has it, so the order of the messages is the
// order of the batch.
type topicCall struct {
	call *publishCall
	// answers has room for an answer to each message: the client's promises must not block.
	answers chan placed
	// waiting are the places of messages that were written and have no answer.
	waiting map[int]bool
	// suspects are the places of messages whose batch of records was refused.
	suspects []int
}

// placed is the answer to the message at a place of the batch.
type placed struct {
	place  int
	answer kafkaconn.Answer
}

// dispatch writes one message, or settles the message unsent. It returns when the next message may follow.
func (t *topicCall) dispatch(i int) {
	p, m := t.call.publisher, &t.call.batch[i]
	written := message(m, m.Attempt)
	if err := written.Check(); err != nil {
		t.call.outcomes.Add(i, outcomes.Refused(err))
		return
	}
	route := routed(m)
	for {
		producer, err := p.current()
		if err != nil {
			t.call.outcomes.Add(i, outcomes.Unsent(err))
			return
		}
		decision := p.routes.Decide(&route)
		switch decision.State {
		case publish.Rejected:
			t.call.outcomes.Add(i, outcomes.Refused(decision.Err))
			return
		case publish.Stalled:
			t.call.outcomes.Add(i, outcomes.Unsent(decision.Err))
			return
		case publish.Pending:
			if !t.awaitProbe(decision.ProbeEnded) {
				t.call.outcomes.Add(i, outcomes.Unsent(t.call.late()))
				return
			}
		case publish.Probe:
			t.write(i, producer, &written)
			t.finishProbe(i)
			return
		default:
			t.write(i, producer, &written)
			return
		}
	}
}

// write hands a message to the client when there is a slot; without a slot in time the message is unsent.
func (t *topicCall) write(i int, producer *kafkaconn.Producer, m *kafkaconn.Message) {
	p, route := t.call.publisher, routed(&t.call.batch[i])
	if !t.admit() {
		p.routes.Release(&route)
		t.call.outcomes.Add(i, outcomes.Unsent(t.call.late()))
		return
	}
	t.waiting[i] = true
	producer.Write(t.call.answers, m.Record(), func(answer kafkaconn.Answer) {
		<-p.slots
		p.learn(&route, answer)
		t.answers <- placed{i, answer}
	})
}

// admit waits for a slot, and settles messages meanwhile.
func (t *topicCall) admit() bool {
	for {
		if t.call.sending.Err() != nil {
			return false
		}
		select {
		case t.call.publisher.slots <- struct{}{}:
			return true
		case a := <-t.answers:
			t.settle(a)
		case <-t.call.sending.Done():
			return false
		}
	}
}

// awaitProbe waits until the probe of another call has ended, and reports whether messages may still be sent.
func (t *topicCall) awaitProbe(ended <-chan struct{}) bool {
	for {
		select {
		case <-ended:
			return true
		case a := <-t.answers:
			t.settle(a)
		case <-t.call.sending.Done():
			return false
		}
	}
}

// finishProbe waits for the answer to the first message to a topic. After a while other messages follow.
func (t *topicCall) finishProbe(i int) {
	routes, topic := t.call.publisher.routes, t.call.batch[i].Exchange
	patience, cancel := context.WithTimeout(t.call.answers, probePatience)
	defer cancel()
	t.await(patience, func() bool { return !t.waiting[i] })
	if t.waiting[i] {
		routes.Presume(topic)
	}
	routes.EndProbe(topic)
}

// await settles messages until enough is true or the context ends.
func (t *topicCall) await(ctx context.Context, enough func() bool) {
	for !enough() {
		select {
		case a := <-t.answers:
			t.settle(a)
		case <-ctx.Done():
			return
		}
	}
}

// settle hands over the outcome of a message. Each message of a refused batch of records is a suspect.
func (t *topicCall) settle(a placed) {
	delete(t.waiting, a.place)
	if a.answer.Fate == kafkaconn.BatchRefused {
		t.suspects = append(t.suspects, a.place)
		return
	}
	t.call.outcomes.Add(a.place, result(a.answer))
}

// abandon settles the messages without an answer. The client drops them as soon as it notices.
func (t *topicCall) abandon() {
	p := t.call.publisher
	for i := range t.waiting {
		route := routed(&t.call.batch[i])
		p.stall(&route)
		t.call.outcomes.Add(i, outcomes.Unsure(fmt.Errorf("no answer of the broker within %v", p.config.ConfirmTimeout)))
	}
	if len(t.waiting) > 0 {
		p.nudge()
	}
}
