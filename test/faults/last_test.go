package faults

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/test/servers"
)

// lastProducer is the name in the messages after which nothing else comes from a queue.
const lastProducer = "the-last"

// lastEach is how many of them are published for each consumer of a queue: they take turns.
const lastEach = 2

// arrivals are the deliveries of the consumers: the copies, and the last messages, which say that there are no more
// copies.
type arrivals struct {
	mu sync.Mutex
	// consumers counts them by queue.
	consumers map[string]int
	last      map[string]bool
}

// consumed says that so many more consumers take from a queue.
func (w *world) consumed(queue string, consumers int) {
	w.arrivals.mu.Lock()
	defer w.arrivals.mu.Unlock()
	if w.arrivals.consumers == nil {
		w.arrivals.consumers, w.arrivals.last = map[string]int{}, map[string]bool{}
	}
	w.arrivals.consumers[queue] += consumers
}

// got enters a copy in the ledger, unless the copy is a last message.
func (w *world) got(key string, c Copy) {
	if isLast(key) {
		w.arrivals.mu.Lock()
		defer w.arrivals.mu.Unlock()
		w.arrivals.last[key] = true
		return
	}
	w.ledger.Got(key, c)
}

func isLast(key string) bool { return strings.HasPrefix(key, lastProducer+"/") }

// emptied waits until the consumers have emptied their queues: a queue delivers in the order of publishing, so no
// copy is left before the last messages once the last messages have arrived.
func (w *world) emptied() {
	w.t.Helper()
	if w.stream != nil {
		w.stream.empty(w)
		return
	}
	w.arrivals.mu.Lock()
	queues := w.arrivals.consumers
	w.arrivals.mu.Unlock()
	conn, err := amqp.Dial(w.broker.URL)
	w.must(err)
	defer conn.Close()
	channel, err := conn.Channel()
	w.must(err)
	sent := 0
	for queue, consumers := range queues {
		for n := range lastEach * consumers {
			w.must(channel.PublishWithContext(w.t.Context(), "", queue, false, false, amqp.Publishing{
				AppId: lastProducer, MessageId: fmt.Sprintf("%s.%d", queue, n), DeliveryMode: amqp.Persistent,
			}))
			sent++
		}
	}
	w.lastArrived(sent)
}

// lastArrived waits until so many last messages have arrived.
func (w *world) lastArrived(sent int) {
	w.t.Helper()
	servers.Eventually(w.t, patience, "the last messages have arrived", func() bool {
		w.arrivals.mu.Lock()
		defer w.arrivals.mu.Unlock()
		return len(w.arrivals.last) == sent
	})
}

// Late copies are judged too: a queue may hold copies when the coordinators have finished.
func TestQueuesAreEmptiedBeforeJudging(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{bare: true, consume: func(w *world) { w.consumed(queue, 1) }})
	newLoad(w)
	conn, err := amqp.Dial(w.broker.URL)
	w.must(err)
	defer conn.Close()
	channel, err := conn.Channel()
	w.must(err)
	_, err = channel.QueueDeclare(queue, true, false, false, false, nil)
	w.must(err)
	w.must(channel.PublishWithContext(t.Context(), "", queue, false, false,
		amqp.Publishing{AppId: "kept", MessageId: "late"}))
	deliveries, err := channel.Consume(queue, "", true, false, false, false, nil)
	w.must(err)
	go func() {
		wait(time.Second)
		for d := range deliveries {
			w.got(d.AppId+"/"+d.MessageId, Copy{Attempt: 1})
		}
	}()
	end := w.drain(patience)
	if found := Check(w.ledger, end); len(found) == 0 || found[0].Verdict != Corrupted {
		t.Errorf("a message never sent, which came late: %v", found)
	}
}
