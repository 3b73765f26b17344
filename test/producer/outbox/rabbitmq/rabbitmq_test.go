// Package rabbitmq_test tests broker/rabbitmq/rabbitmqoutbox on a real RabbitMQ.
package rabbitmq_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqoutbox"
	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

func sender(t *testing.T, url string) *rabbitmqoutbox.Sender {
	t.Helper()
	s, err := rabbitmqoutbox.New(rabbitmqoutbox.Config{URL: url, Producer: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// channel opens a channel of the test's own.
func channel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func declare(t *testing.T, ch *amqp.Channel, queue string) {
	t.Helper()
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, ch *amqp.Channel, queue string) amqp.Delivery {
	t.Helper()
	var d amqp.Delivery
	servers.Eventually(t, 10*time.Second, "a message in "+queue, func() (found bool) {
		var err error
		if d, found, err = ch.Get(queue, true); err != nil {
			t.Fatal(err)
		}
		return found
	})
	return d
}

// queued is a message to the queue of that name, by the default exchange.
func queued(id, queue string) sqlmarker.Queued {
	return sqlmarker.Queued{Claims: 1, Message: producer.Message{
		ID: id, RoutingKey: queue, Body: []byte("paid " + id), ContentType: "text/plain",
		Headers: map[string]string{"trace": "t1"},
	}}
}

func fates(results []outbox.Result) []outbox.Fate {
	all := make([]outbox.Fate, len(results))
	for i, r := range results {
		all[i] = r.Fate
	}
	return all
}

func TestMessageArrivesAsEnqueued(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	ch, s := channel(t, url), sender(t, url)
	declare(t, ch, "paid")
	again := queued("1001", "paid")
	again.Claims = 3
	again.Message.Headers["msghandler-attempt"] = "1" // the count of copies is not the caller's
	if got := s.Send(t.Context(), []sqlmarker.Queued{again}); got[0].Fate != outbox.Sent {
		t.Fatalf("%+v", got)
	}
	d := take(t, ch, "paid")
	if d.MessageId != "1001" || d.AppId != "orders" || string(d.Body) != "paid 1001" || d.ContentType != "text/plain" ||
		d.DeliveryMode != amqp.Persistent || d.Headers["trace"] != "t1" || d.Headers["msghandler-attempt"] != int64(3) ||
		d.Timestamp.IsZero() {
		t.Errorf("%+v", d)
	}
}

func TestOnlyReturnedMessagesAreRefused(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	ch, s := channel(t, url), sender(t, url)
	declare(t, ch, "paid")
	batch := []sqlmarker.Queued{}
	for i := range 200 {
		queue := "paid"
		if i%2 == 1 {
			queue = "nobody's"
		}
		batch = append(batch, queued(string(rune('a'+i%26))+time.Duration(i).String(), queue))
	}
	for i, fate := range fates(s.Send(t.Context(), batch)) {
		if want := []outbox.Fate{outbox.Sent, outbox.Refused}[i%2]; fate != want {
			t.Errorf("message %d is %v, want %v", i, fate, want)
		}
	}
}

// The first time such a message holds its batch; then nothing is sent to that queue for a while, and no batch waits.
func TestQueueThatDoesNotConfirm(t *testing.T) {
	t.Parallel()
	const stuck = "stuck"
	broker := servers.PrivateRabbitMQ(t)
	ch, s := channel(t, broker.URL), sender(t, broker.URL)
	declare(t, ch, stuck)
	declare(t, ch, "paid")
	// The process of the queue is suspended: the queue takes messages and does not confirm.
	lookup := fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"%s">>))`, stuck)
	broker.Ctl("eval", lookup+`, sys:suspend(amqqueue:get_pid(Q)).`)
	batch := []sqlmarker.Queued{queued("0", stuck)}
	for i := range 50 {
		batch = append(batch, queued(fmt.Sprint(i+1), "paid"))
	}
	within := 500 * time.Millisecond
	servers.Eventually(t, 2*time.Minute, "all but the first are sent", func() bool {
		within *= 2
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return !slices.Contains(fates(s.Send(ctx, batch))[1:], outbox.Unreached)
	})
	// It returns when the others are confirmed, long before its time is over.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results := s.Send(ctx, batch)
	if ctx.Err() != nil {
		t.Error("the batch waited for the stalled queue")
	}
	if results[0].Fate != outbox.Early || results[0].In <= 0 || results[0].Err == nil {
		t.Errorf("for the stalled queue: %+v", results[0])
	}
	for i, fate := range fates(results[1:]) {
		if fate != outbox.Sent {
			t.Errorf("message %d is %v", i+1, fate)
		}
	}
}
