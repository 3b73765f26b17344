package kafka

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// probePatience is how long a probe may go without an answer before other messages to its topic follow. The cluster
// refuses a topic soon; a longer wait is for a broker that does not answer.
const probePatience = time.Second

// topicCall is the part of a call of Publish for one topic. One goroutine writes, so the order of the messages is the
// order of the batch.
type topicCall struct {
	call *publishCall
	// answered has an element when there is a new answer.
	answered chan struct{}

	mu sync.Mutex
	// waiting are the places of messages that were written and have no answer.
	waiting map[int]bool
	// suspects are the places of messages whose batch of records was refused.
	suspects []int
	// stored is set when the topic has stored a message.
	stored bool
}

// dispatch writes one message, or settles the message unsent. It returns when the next message may follow.
func (t *topicCall) dispatch(i int) {
	p, m := t.call.publisher, &t.call.Batch[i]
	written := record(m, m.Attempt)
	if err := written.Check(); err != nil {
		t.call.Add(i, publish.Refused.Because(err))
		return
	}
	state := p.Decide(t.call.Call, i)
	if state == 0 {
		return
	}
	if state == publish.Probe {
		defer p.Routes.EndProbe(m.Exchange)
	}
	if producer, err := p.Admit(t.call.Call); err != nil {
		t.call.Settle(i, publish.Unsent.Because(err))
	} else {
		t.write(i, producer, &written)
	}
	if state == publish.Probe {
		t.finishProbe(i)
	}
}

// write hands a message to the client. The answer may come when the call has ended, and the message is the caller's.
func (t *topicCall) write(i int, producer *kafkaconn.Producer, m *kafkaconn.Message) {
	t.mu.Lock()
	t.waiting[i] = true
	t.mu.Unlock()
	p, route := t.call.publisher, publish.Message{Name: t.call.Batch[i].Name, Exchange: t.call.Batch[i].Exchange}
	producer.Write(t.call.Answers, m.Record(), func(answer kafkaconn.Answer) {
		t.call.Release()
		t.call.Protect(func() {
			p.learn(&route, answer)
			t.settleMessage(i, answer)
		})
	})
}

// settleMessage takes the answer to a message. Each message of a refused batch of records is a suspect.
func (t *topicCall) settleMessage(i int, answer kafkaconn.Answer) {
	t.mu.Lock()
	waited := t.waiting[i]
	delete(t.waiting, i)
	t.stored = t.stored || answer.Fate == kafkaconn.Stored
	suspect := waited && answer.Fate == kafkaconn.BatchRefused
	if suspect {
		t.suspects = append(t.suspects, i)
	}
	t.mu.Unlock()
	if waited && !suspect {
		t.call.Add(i, resultOf(answer))
	}
	select {
	case t.answered <- struct{}{}:
	default:
	}
}

// finishProbe waits for the answer to the first message to a topic. After a while other messages follow.
func (t *topicCall) finishProbe(i int) {
	patience, cancel := context.WithTimeout(t.call.Answers, probePatience)
	defer cancel()
	if !t.await(patience, func() bool { return !t.waiting[i] }) {
		t.call.publisher.Routes.Presume(t.call.Batch[i].Exchange)
	}
}

// await waits until the answers are enough, or until the context ends; then enough is false.
func (t *topicCall) await(ctx context.Context, enough func() bool) bool {
	for {
		t.mu.Lock()
		is := enough()
		t.mu.Unlock()
		if is {
			return true
		}
		select {
		case <-t.answered:
		case <-ctx.Done():
			return false
		}
	}
}

// errSlow says that a topic has stored some messages in time, and not all.
var errSlow = errors.New("the topic is slow")

// abandon settles the messages without an answer, and returns the suspects in their order. The client drops the
// messages as soon as it notices.
func (t *topicCall) abandon() (suspects []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.call.publisher
	why := context.DeadlineExceeded
	if t.stored {
		why = errSlow
	}
	for i := range t.waiting {
		p.stall(&t.call.Batch[i], why)
		t.call.Add(i, t.call.Unanswered())
	}
	if len(t.waiting) > 0 {
		p.nudge()
	}
	clear(t.waiting)
	return slices.Sorted(slices.Values(t.suspects))
}
