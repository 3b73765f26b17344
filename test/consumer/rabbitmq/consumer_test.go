// Package rabbitmq_test tests the consumer on a real RabbitMQ.
package rabbitmq_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	rabbit "github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/dedup/memory"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

const patience = time.Minute

// bench is a virtual host with a raw connection for publishing and inspection.
type bench struct {
	*testing.T
	vhost *servers.Vhost
	ch    *amqp.Channel
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchAt(t, servers.RabbitMQ(t))
}

func newBenchAt(t *testing.T, vhost *servers.Vhost) *bench {
	t.Helper()
	conn, err := amqp.Dial(vhost.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, vhost, ch}
}

// config consumes a declared quorum queue with dead letters.
func (b *bench) config() rabbit.Config {
	return rabbit.Config{
		URL: b.vhost.URL, Queue: "payments", Logger: slog.New(slog.DiscardHandler),
		Retry:   []time.Duration{50 * time.Millisecond},
		Declare: &rabbit.Declare{Exchange: "orders", DeadLetterExchange: "dead"},
	}
}

// publish sends orders first to last.
func (b *bench) publish(first, last int) {
	b.Helper()
	for i := first; i <= last; i++ {
		err := b.ch.PublishWithContext(b.Context(), "orders", "order.paid", true, false, amqp.Publishing{
			MessageId: strconv.Itoa(i), AppId: "orders", ContentType: "text/plain", Body: []byte("pay"),
			DeliveryMode: amqp.Persistent, Headers: amqp.Table{"msghandler-attempt": int64(1), "trace": "abc"},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// depth is how many messages are ready in a queue.
func (b *bench) depth(queue string) int {
	b.Helper()
	q, err := b.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		b.Fatal(err)
	}
	return q.Messages
}

// start runs a consumer and returns once its queue exists; stop ends the consumer and returns the result of Run.
func (b *bench) start(config rabbit.Config, h consumer.HandlerFunc) (stop func() error) {
	b.Helper()
	c, err := rabbit.New(config)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- c.Run(ctx, h) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-result:
			return err
		case <-time.After(patience):
			return errors.New("Run does not return")
		}
	})
	b.Cleanup(func() { _ = stop() })
	b.waitForQueue(config.Queue)
	return stop
}

// waitForQueue polls on channels of its own, as a missing queue closes the channel.
func (b *bench) waitForQueue(queue string) {
	b.Helper()
	servers.Eventually(b, patience, "a consumer on "+queue, func() bool {
		conn, err := amqp.Dial(b.vhost.URL)
		if err != nil {
			return false
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			return false
		}
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err == nil && q.Consumers > 0
	})
}

// take waits for the next value.
func take[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
		panic("unreachable")
	}
}

func TestReconnectHandlesNothingTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.config()
	config.Dedup = memory.New(1000)
	config.Concurrency = 2
	handled := make(chan string, 10)
	begun, goOn := make(chan struct{}, 10), make(chan struct{})
	b.start(config, func(_ context.Context, m *consumer.Message) error {
		begun <- struct{}{}
		<-goOn
		handled <- m.ID
		return nil
	})
	b.publish(1, 1)
	take(t, begun, "the first message begun")
	b.vhost.CloseConnections(2)
	b.waitForQueue("payments")
	// The acknowledgement is lost; the redelivered copy is busy at first, then done.
	close(goOn)
	again := newBenchOn(t, b)
	again.publish(2, 2)
	if first, second := take(t, handled, "the first"), take(t, handled, "the second"); first != "1" || second != "2" {
		t.Errorf("handled %s and %s", first, second)
	}
	servers.Eventually(t, patience, "an empty queue", func() bool { return again.unsettled("payments") == 0 })
	if len(handled) != 0 {
		t.Errorf("handled again: %s", <-handled)
	}
}

// newBenchOn is another raw connection to the same virtual host.
func newBenchOn(t *testing.T, b *bench) *bench {
	t.Helper()
	conn, err := amqp.Dial(b.vhost.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, b.vhost, ch}
}

// unsettled counts ready and unsettled messages, in the numbers of the management API.
func (b *bench) unsettled(queue string) int {
	b.Helper()
	var q struct {
		Messages *int `json:"messages"`
	}
	if err := b.vhost.Management().Call("GET", "/api/queues/"+b.vhost.Name+"/"+queue, nil, &q); err != nil {
		b.Fatal(err)
	}
	if q.Messages == nil {
		return -1
	}
	return *q.Messages
}

func TestFailedMessageIsRedeliveredAfterPause(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.config()
	config.Retry = []time.Duration{200 * time.Millisecond}
	type delivery struct {
		*consumer.Message
		at time.Time
	}
	got := make(chan delivery, 10)
	b.start(config, func(_ context.Context, m *consumer.Message) error {
		got <- delivery{m, time.Now()}
		switch m.Deliveries {
		case 0:
			return errors.New("the database is away")
		case 1:
			panic("a fault in the handler")
		}
		return nil
	})
	b.publish(1, 1)
	before := take(t, got, "the first delivery")
	for n := 1; n <= 2; n++ {
		d := take(t, got, "delivery "+strconv.Itoa(n))
		if !d.Redelivered || d.Deliveries != n {
			t.Errorf("delivery %d: redelivered %v, count %d", n, d.Redelivered, d.Deliveries)
		}
		if pause := d.at.Sub(before.at); pause < 100*time.Millisecond {
			t.Errorf("came again after %v: a hot loop", pause)
		}
		before = d
	}
	servers.Eventually(t, patience, "an empty queue", func() bool { return b.unsettled("payments") == 0 })
	if len(got) != 0 {
		t.Error("came again after it was handled")
	}
}

func TestPrefetchAndConcurrencyAreBounds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.config()
	config.Prefetch, config.Concurrency = 4, 2
	begun, goOn := make(chan struct{}, 100), make(chan struct{})
	var now, most atomic.Int32
	b.start(config, func(context.Context, *consumer.Message) error {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		begun <- struct{}{}
		<-goOn
		now.Add(-1)
		return nil
	})
	b.publish(1, 20)
	take(t, begun, "the first")
	take(t, begun, "the second")
	// The consumer holds four messages; all others are free for other consumers.
	deliveries, err := b.ch.Consume("payments", "other", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 16 {
		take(t, deliveries, "a message for the other consumer")
	}
	if len(deliveries) != 0 || len(begun) != 0 {
		t.Errorf("the other has %d too many, %d handlers too many", len(deliveries), len(begun))
	}
	close(goOn)
	take(t, begun, "the third")
	take(t, begun, "the fourth")
	if most.Load() > 2 {
		t.Errorf("%d handlers at once", most.Load())
	}
}

func TestDefaultPrefetchIsTwenty(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begun, goOn := make(chan struct{}, 100), make(chan struct{})
	b.start(b.config(), func(context.Context, *consumer.Message) error {
		begun <- struct{}{}
		<-goOn
		return nil
	})
	b.publish(1, 25)
	take(t, begun, "the first")
	// Only now: while the broker hands messages out, the other consumer would get part of the 20.
	servers.Eventually(t, patience, "20 of 25 are delivered", func() bool { return b.depth("payments") == 5 })
	deliveries, err := b.ch.Consume("payments", "other", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		take(t, deliveries, "a message for the other consumer")
	}
	servers.Eventually(t, patience, "20 are left", func() bool { return b.unsettled("payments") == 20 })
	if len(deliveries) != 0 || len(begun) != 0 {
		t.Errorf("the other has %d too many, %d handlers too many", len(deliveries), len(begun))
	}
	close(goOn)
}

func TestStopFinishesRunningHandlersOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.config()
	// A quorum queue counts a cancelled consumer until its last delivery is settled.
	config.Declare.QueueType = "classic"
	begun, goOn := make(chan struct{}, 10), make(chan struct{})
	stop := b.start(config, func(ctx context.Context, _ *consumer.Message) error {
		begun <- struct{}{}
		<-goOn
		return ctx.Err()
	})
	b.publish(1, 5)
	take(t, begun, "the first message begun")
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	servers.Eventually(t, patience, "the consumer is cancelled", func() bool {
		q, err := b.ch.QueueDeclarePassive("payments", true, false, false, false, nil)
		return err == nil && q.Consumers == 0
	})
	select {
	case err := <-stopped:
		t.Fatalf("Run returned %v before its handler", err)
	default:
	}
	close(goOn)
	if err := take(t, stopped, "Run returns"); err != nil {
		t.Error(err)
	}
	servers.Eventually(t, patience, "four messages left", func() bool { return b.depth("payments") == 4 })
	if len(begun) != 0 {
		t.Error("began another after the stop")
	}
}

func TestConsumerWaitsForAMissingQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.config()
	config.Declare = nil
	tried := make(chan struct{}, 100)
	config.Logger = slog.New(countLines{tried})
	c, err := rabbit.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got, result := make(chan string, 1), make(chan error, 1)
	go func() {
		result <- c.Run(ctx, consumer.HandlerFunc(func(_ context.Context, m *consumer.Message) error {
			got <- m.ID
			return nil
		}))
	}()
	take(t, tried, "a first try")
	if _, err := b.ch.QueueDeclare("payments", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	err = b.ch.PublishWithContext(t.Context(), "", "payments", true, false, amqp.Publishing{MessageId: "1"})
	if err != nil {
		t.Fatal(err)
	}
	take(t, got, "the message")
	cancel()
	if err := take(t, result, "Run returns"); err != nil {
		t.Error(err)
	}
}

// countLines is a slog.Handler that signals each warning.
type countLines struct{ to chan<- struct{} }

func (c countLines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (c countLines) WithAttrs([]slog.Attr) slog.Handler               { return c }
func (c countLines) WithGroup(string) slog.Handler                    { return c }

func (c countLines) Handle(context.Context, slog.Record) error {
	c.to <- struct{}{}
	return nil
}

func TestDifferentlyDeclaredQueueIsAnError(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.ch.QueueDeclare("payments", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	c, err := rabbit.New(b.config())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = c.Run(ctx, consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil }))
	if err == nil || ctx.Err() != nil {
		t.Errorf("Run: %v", err)
	}
}
