package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	rabbit "github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/logs"
	"github.com/msghandler/msghandler/test/servers"
)

// A message that did not fail is returned any number of times, whether or not the broker counts returns.
func TestBusyMessageMeetsNoDeliveryLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.config()
	config.Declare.DeliveryLimit = 2
	config.Retry, config.DepthInterval = []time.Duration{time.Millisecond}, time.Hour
	var calls atomic.Int32
	handled := make(chan string, 10)
	b.start(config, func(_ context.Context, m *consumer.Message) error {
		if m.ID == "1" && calls.Add(1) <= 30 {
			return consumer.ErrBusy
		}
		handled <- m.ID
		return nil
	})
	b.publish(1, 2)
	for came := map[string]bool{}; !came["1"] || !came["2"]; {
		came[take(t, handled, "both messages")] = true
	}
	if n := b.depth("payments.dead"); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// The log must not promise a redelivery when the delivery limit rules the redelivery out.
func TestDropAtDeliveryLimitIsLogged(t *testing.T) {
	t.Parallel()
	b, log := newBench(t), &logs.Lines{}
	config := b.config()
	config.Logger = slog.New(slog.NewJSONHandler(log, nil))
	config.Declare.DeliveryLimit = 2
	config.Retry = []time.Duration{time.Millisecond}
	b.start(config, func(context.Context, *consumer.Message) error { return errors.New("poison") })
	b.publish(1, 1)
	servers.Eventually(t, patience, "a dead letter", func() bool { return b.depth("payments.dead") == 1 })
	var redelivered, dropped int
	for _, line := range log.About(t, "1") {
		switch text := line["msg"].(string); {
		case strings.Contains(text, "will be redelivered"):
			redelivered++
		case strings.Contains(text, "delivery limit is reached"):
			dropped++
		}
	}
	if redelivered != 2 || dropped != 1 {
		t.Errorf("%d lines promise a redelivery and %d name the limit; want 2 and 1", redelivered, dropped)
	}
}

// The dead-letter queue is deleted: meanwhile the broker must not reach its own limit and drop the message.
func TestDeliveryLimitAloneLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.config()
	config.Declare.DeliveryLimit = 2
	config.Retry = []time.Duration{time.Millisecond}
	var calls atomic.Int32
	b.start(config, func(context.Context, *consumer.Message) error {
		calls.Add(1)
		return consumer.Reject(errors.New("nonsense"))
	})
	if _, err := b.ch.QueueDelete("payments.dead", false, false, false); err != nil {
		t.Fatal(err)
	}
	b.publish(1, 1)
	servers.Eventually(t, patience, "it was handled ten times", func() bool { return calls.Load() >= 10 })
	b.deadLetterQueue(deadLetterQueues["Declare, before RabbitMQ 4"])
	if err := b.ch.QueueBind("payments.dead", "payments", "dead", false, nil); err != nil {
		t.Fatal(err)
	}
	if dead := b.get("payments.dead"); dead.Headers[consumer.HeaderDeadReason] != "rejected: nonsense" {
		t.Errorf("the dead letter has the headers %v", dead.Headers)
	}
}

// A stop returns messages that were not begun. Since RabbitMQ 4.3 such a return is no failure.
func TestStopIsNoFailedDelivery(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.config()
	config.Prefetch = 5
	begun, goOn := make(chan string, 10), make(chan struct{})
	stop := b.start(config, func(_ context.Context, m *consumer.Message) error {
		begun <- m.ID
		<-goOn
		return nil
	})
	b.publish(1, 5)
	take(t, begun, "the first message")
	servers.Eventually(t, patience, "all are delivered", func() bool { return b.depth("payments") == 0 })
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	servers.Eventually(t, patience, "what was not begun is back", func() bool { return b.depth("payments") == 4 })
	close(goOn)
	if err := take(t, stopped, "the stop"); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		d := b.get("payments")
		if count, _ := d.Headers["x-delivery-count"].(int64); !d.Redelivered || count != b.nackCounts() {
			t.Errorf("message %s: redelivered %v, headers %v", d.MessageId, d.Redelivered, d.Headers)
		}
	}
	servers.Eventually(t, patience, "an empty queue", func() bool { return b.unsettled("payments") == 0 })
}

// A dead-letter queue may be older than an upgrade of RabbitMQ, or declared by an operator.
func TestDeadLetterQueueKeepsOtherLimit(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string]amqp.Table{
		"none":                   {amqp.QueueTypeArg: amqp.QueueTypeQuorum},
		"no limit of RabbitMQ 4": {amqp.QueueTypeArg: amqp.QueueTypeQuorum, "x-delivery-limit": int64(-1)},
		"five":                   {amqp.QueueTypeArg: amqp.QueueTypeQuorum, "x-delivery-limit": int64(5)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.deadLetterQueue(arguments)
			b.start(b.config(), func(context.Context, *consumer.Message) error {
				return consumer.Reject(errors.New("nonsense"))
			})
			b.publish(1, 1)
			b.get("payments.dead")
		})
	}
}

func TestDeadLetterQueueMismatchIsReported(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetterQueue(amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum, "x-max-length": int64(7)})
	c, err := rabbit.New(b.config())
	if err != nil {
		t.Fatal(err)
	}
	var mismatch *rabbit.MismatchError
	err = c.Run(t.Context(), consumer.HandlerFunc(nil))
	if !errors.As(err, &mismatch) || mismatch.Argument != "x-max-length" {
		t.Errorf("Run: %v", err)
	}
}

// nackCounts is how much a basic.nack adds to x-delivery-count: nothing since RabbitMQ 4.3.
func (b *bench) nackCounts() int64 {
	b.Helper()
	if major, minor := b.version(); major > 4 || major == 4 && minor >= 3 {
		return 0
	}
	return 1
}

// version is the broker's.
func (b *bench) version() (major, minor int) {
	b.Helper()
	conn, err := amqp.Dial(b.vhost.URL)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Sscanf(fmt.Sprint(conn.Properties["version"]), "%d.%d", &major, &minor); err != nil {
		b.Fatal(err)
	}
	return major, minor
}

// Processes end while they handle one message. Here, the test takes the message and returns it, so that the queue
// counts. The message becomes a dead letter, and no handler sees it. Since RabbitMQ 4.0 the queue does so itself.
func TestMessageThatEndsProcessesIsBuried(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.delayed(time.Second)
	stop := b.start(config, func(context.Context, *consumer.Message) error { return nil })
	b.waitForQueue("payments")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.publish(1, 1)
	for range 21 {
		servers.Eventually(t, patience, "the message is back", func() bool {
			d, ok, err := b.ch.Get("payments", false)
			if err == nil && ok {
				err = d.Reject(true)
			}
			if err != nil {
				t.Fatal(err)
			}
			return ok
		})
	}
	b.start(config, func(_ context.Context, m *consumer.Message) error {
		t.Errorf("handled %+v", m)
		return nil
	})
	if d := b.get("payments.dead"); d.MessageId != "1" {
		t.Errorf("the dead letter is %+v", d)
	}
}

// A process that ends takes the messages beside the guilty one with it, and all have its count. They are handled in an
// order by chance, or all would become dead letters together.
func TestNeighboursOfDeadlyMessageAreSpread(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.delayed(time.Second)
	stop := b.start(config, func(context.Context, *consumer.Message) error { return nil })
	b.waitForQueue("payments")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.publish(1, 12)
	servers.Eventually(t, patience, "all messages", func() bool { return b.depth("payments") == 12 })
	for range 6 {
		taken := make([]amqp.Delivery, 12)
		for i := range taken {
			var ok bool
			var err error
			if taken[i], ok, err = b.ch.Get("payments", false); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
		for i := range taken {
			if err := taken[i].Reject(true); err != nil {
				t.Fatal(err)
			}
		}
		servers.Eventually(t, patience, "all are back", func() bool { return b.depth("payments") == 12 })
	}
	handled := make(chan string, 12)
	b.start(config, func(_ context.Context, m *consumer.Message) error { handled <- m.ID; return nil })
	for i, inOrder := 1, true; i <= 12; i++ {
		inOrder = take(t, handled, "a message") == strconv.Itoa(i) && inOrder
		if i == 12 && inOrder {
			t.Error("all were handled in their order")
		}
	}
}
