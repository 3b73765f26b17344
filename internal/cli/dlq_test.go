package cli_test

import (
	"strconv"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

func TestDeadLettersOnARealBroker(t *testing.T) {
	t.Parallel()
	vhost := servers.RabbitMQ(t)
	conn, err := amqp.Dial(vhost.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"payments", "payments.dead"} {
		if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for id := range 4 {
		confirmation, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", "payments.dead", true, false, amqp.Publishing{
			MessageId: strconv.Itoa(id), AppId: "orders", Body: []byte("order " + strconv.Itoa(id)), Headers: amqp.Table{
				consumer.HeaderQueue: "payments", consumer.HeaderExchange: "", consumer.HeaderRoutingKey: "payments",
				consumer.HeaderDeadReason: "not JSON", consumer.HeaderRetries: int64(3),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := confirmation.WaitContext(t.Context()); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	dlq := func(args ...string) ran {
		return run([]string{"MSGHANDLER_AMQP_URL=" + vhost.URL}, append([]string{"dlq"}, args...)...)
	}
	const queue = "--queue=payments.dead"
	dlq("list", queue).want(t, 0, "orders/3   payments   3                    payments      not JSON\n", "")
	dlq("list", queue, "--limit=3").want(t, 0, "orders/2 ", "this is the end of --limit=3, and there may be more; raise it\n")
	dlq("list", queue, "--output=json", "--limit=1").want(t, 0, `"reason": "not JSON"`, "")
	dlq("list", queue, "--output=yaml", "--limit=1").want(t, 0, "more: true\n", "")
	dlq("list", queue, "--output=yaml", "--limit=4").want(t, 0, "more: false\n", "")
	dlq("show", queue, "orders/1").want(t, 0, "order 1\n", "")
	dlq("show", queue, "orders/9").want(t, 3, "", "no such dead letter")
	dlq("replay", queue).want(t, 2, "", "--all")
	dlq("replay", queue, "orders/0", "orders/9").want(t, 3, "replayed 1\n", "1 of the 2")
	dlq("discard", queue, "orders/1").want(t, 0, "discarded 1\n", "")
	dlq("replay", queue, "--all", "--yes").want(t, 0, "replayed 2\n", "")
	dlq("list", queue).want(t, 0, "no dead letters\n", "")
	dlq("list", "--queue=nowhere").want(t, 1, "", "NOT_FOUND")
	dlq("list", queue, "--amqp.url=redis://x").want(t, 2, "", "--amqp.url")
	if q, err := ch.QueueDeclarePassive("payments", true, false, false, false, nil); err != nil || q.Messages != 3 {
		t.Errorf("%d came back, %v", q.Messages, err)
	}
}
