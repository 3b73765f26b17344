package cli_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

func TestDeadLettersOnRealBroker(t *testing.T) {
	t.Parallel()
	vhost := servers.RabbitMQ(t)
	ch := channel(t, vhost.URL)
	for _, queue := range []string{"payments", "payments.dead"} {
		if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	for id := range 4 {
		put(t, ch, "payments.dead", amqp.Publishing{
			MessageId: strconv.Itoa(id), AppId: "orders", Body: []byte("order " + strconv.Itoa(id)), Headers: amqp.Table{
				consumer.HeaderQueue: "payments", consumer.HeaderExchange: "", consumer.HeaderRoutingKey: "payments",
				consumer.HeaderDeadReason: "not JSON", consumer.HeaderRetries: int64(3),
			},
		})
	}
	dlq := func(args ...string) ran {
		return run([]string{"MSGHANDLER_AMQP_URL=" + vhost.URL}, append([]string{"dlq", args[0], "--direct"}, args[1:]...)...)
	}
	const queue = "--queue=payments.dead"
	dlq("list", queue).want(t, 0, "orders/3   payments   -     3                    payments      not JSON\n", "")
	dlq("list", queue, "--limit=3").
		want(t, 0, "orders/2 ", "this is the end of --limit=3, and there may be more; raise it\n")
	dlq("list", queue, "--output=json", "--limit=1").want(t, 0, `"reason": "not JSON"`, "")
	dlq("list", queue, "--output=yaml", "--limit=1").want(t, 0, "more: true\n", "")
	dlq("list", queue, "--output=yaml", "--limit=4").want(t, 0, "more: false\n", "")
	dlq("show", queue, "orders/1").want(t, 0, "order 1\n", "")
	dlq("show", queue, "orders/9").want(t, 3, "", "The queue payments.dead has no dead letter orders/9")
	dlq("replay", queue).want(t, 2, "", "--all")
	dlq("replay", queue, "orders/0", "orders/9").want(t, 3, "replayed 1\n", "1 of the 2")
	dlq("discard", queue, "orders/1").want(t, 0, "discarded 1\n", "")
	dlq("replay", queue, "--all", "--yes").want(t, 0, "replayed 2\n", "")
	dlq("list", queue).want(t, 0, "no dead letters\n", "")
	dlq("list", "--queue=nowhere").want(t, 1, "", "the broker has no such queue in this virtual host")
	dlq("list", queue, "--amqp.url=redis://x").want(t, 2, "", "--amqp.url")
	if q, err := ch.QueueDeclarePassive("payments", true, false, false, false, nil); err != nil || q.Messages != 3 {
		t.Errorf("%d came back, %v", q.Messages, err)
	}
}

// TestRepeatedReadsChangeNothing looks as operators and the console do. The queues are one that a consumer declared,
// and one without a limit of its own, which has a delivery limit of 20 on RabbitMQ 4. Each is looked at five times as
// often.
func TestRepeatedReadsChangeNothing(t *testing.T) {
	t.Parallel()
	vhost, redis := servers.RabbitMQ(t), embeddedtest.Redis(t)
	ch := channel(t, vhost.URL)
	declareDeadLetters(t, vhost.URL, "new")
	quorum := amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}
	if _, err := ch.QueueDeclare("old.dead", true, false, false, false, quorum); err != nil {
		t.Fatal(err)
	}
	queues := []string{"new.dead", "old.dead"}
	for _, queue := range queues {
		for id := range 2 {
			put(t, ch, queue, amqp.Publishing{
				MessageId: strconv.Itoa(id), AppId: "orders", Body: []byte("order"), DeliveryMode: amqp.Persistent,
			})
		}
	}
	for n := range 200 {
		queue := queues[n%2]
		env := []string{
			"MSGHANDLER_AMQP_URL=" + vhost.URL, "MSGHANDLER_REDIS_URL=" + redis, "MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*",
		}
		switch n % 50 {
		case 48:
			run(env, "doctor", "--dead-letters="+queue, "--server=127.0.0.1:1").want(t, 0, "dead letters", "")
		case 49:
			depths, err := rabbitmq.Depths(t.Context(), rabbitmq.Config{URL: vhost.URL}, queue)
			if err != nil || depths[queue] != 2 {
				t.Fatalf("after %d looks at %s there are %v, %v", n, queue, depths, err)
			}
		default:
			if n%4 < 2 {
				run(env, "dlq", "list", "--direct", "--queue="+queue).want(t, 0, "orders/1", "")
			} else {
				run(env, "dlq", "show", "--direct", "--queue="+queue, fmt.Sprintf("orders/%d", n%2)).want(t, 0, "order", "")
			}
		}
		if t.Failed() {
			t.Fatalf("look %d, at %s", n, queue)
		}
	}
	for _, queue := range queues {
		if q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil || q.Messages != 2 {
			t.Errorf("%s has %d letters, %v", queue, q.Messages, err)
		}
	}
}

// declareDeadLetters has a consumer declare its queue and its dead letters' queue.
func declareDeadLetters(t *testing.T, url, queue string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
		URL: url, Queue: queue, Consuming: cancel, Declare: &rabbitmqconsumer.Declare{DeadLetterExchange: "graves"},
		Logger: slog.New(slog.DiscardHandler),
	})
	must.Succeed(t, err)
	must.Succeed(t, c.Run(ctx, consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })))
}

// put publishes to a queue, and waits until the queue has the message.
func put(t *testing.T, ch *amqp.Channel, queue string, message amqp.Publishing) {
	t.Helper()
	confirmation, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", queue, true, false, message)
	must.Succeed(t, err)
	if ok, err := confirmation.WaitContext(t.Context()); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// channel opens a channel with confirms on a connection of its own.
func channel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	must.Succeed(t, err)
	must.Succeed(t, ch.Confirm(false))
	return ch
}
