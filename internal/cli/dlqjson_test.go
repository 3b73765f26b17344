package cli_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

var writeGolden = flag.Bool("golden", false, "write testdata/json anew")

// golden demands that a document is as in testdata/json: the names of the fields are part of the product.
func golden(t *testing.T, name, document string) {
	t.Helper()
	path := filepath.Join("testdata", "json", name)
	if *writeGolden {
		must.Succeed(t, os.WriteFile(path, []byte(document), 0o600))
	}
	want, err := os.ReadFile(path)
	must.Succeed(t, err)
	if document != string(want) {
		t.Errorf("%s: the document is\n%s\nwant\n%s", name, document, want)
	}
}

func TestDeadLetterDocumentsKeepTheirForm(t *testing.T) {
	t.Parallel()
	vhost := servers.RabbitMQ(t)
	ch := channel(t, vhost.URL)
	for _, queue := range []string{"payments", "payments.dead"} {
		if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []struct {
		id, first, cause string
		body             []byte
	}{
		{"1001", "2026-11-24T08:00:00Z", "order 1001: no stock", []byte("{\"order\":\"1001\"}\n")},
		{"1002", "2026-11-24T09:30:00Z", "order 1002: no stock", []byte{0xff, 0x00, 0x10}},
	} {
		put(t, ch, "payments.dead", amqp.Publishing{
			MessageId: l.id, AppId: "orders", Body: l.body, ContentType: "application/json", Headers: amqp.Table{
				consumer.HeaderQueue: "payments", consumer.HeaderExchange: "", consumer.HeaderRoutingKey: "payments",
				consumer.HeaderDeadReason: "gave up", consumer.HeaderRetries: int64(3), consumer.HeaderFirstCause: l.cause,
				consumer.HeaderFirstFailedAt: l.first, "tenant": "eu",
			},
		})
	}
	for name, args := range map[string][]string{
		"dlq-list.json":    {"list"},
		"dlq-show.json":    {"show", "orders/1002"},
		"dlq-count.json":   {"count"},
		"dlq-dry-run.json": {"replay", "orders/1001", "--dry-run"},
	} {
		args = append([]string{"dlq", args[0], "--direct", "--queue=payments", "--output=json"}, args[1:]...)
		got := run([]string{
			"MSGHANDLER_AMQP_URL=" + vhost.URL, "MSGHANDLER_DEAD_LETTERS_PAYMENTS_QUEUE=payments.dead",
		}, args...)
		got.want(t, 0, "{", "")
		golden(t, name, got.out)
	}
	filtered := func(args ...string) ran {
		args = append([]string{"dlq", args[0], "--direct", "--queue=payments.dead"}, args[1:]...)
		return run([]string{"MSGHANDLER_AMQP_URL=" + vhost.URL}, args...)
	}
	filtered("count").want(t, 0, "2 ", "")
	filtered("count", "--cause=1002").want(t, 0, "payments      order 1002: no stock\n1 ", "")
	filtered("list", "--consumer=stock").want(t, 0, "no dead letters\n", "")
	filtered("list", "--older-than=-1s").want(t, 2, "", "--older-than")
	filtered("list", "--older-than=87000h").want(t, 0, "no dead letters\n", "")
	filtered("discard").want(t, 2, "", "or give a filter")
	filtered("discard", "--all").want(t, 2, "", "unknown flag")
	filtered("discard", "--cause=1002").want(t, 2, "", "there is no terminal to ask on")
	filtered("discard", "--cause=1002", "--dry-run").want(t, 0, "1 would be discarded\n", "")
	filtered("discard", "--cause=1002", "--yes", "--reason=test").
		want(t, 0, "discarded 1\n", `reason=test letters="--cause=\"1002\""`)
	filtered("replay", "orders/1001", "--producer=orders").want(t, 2, "", "or give a filter")
	filtered("replay", "--producer=orders", "--yes").want(t, 0, "replayed 1\n", "")
}

// A publisher wrote milliseconds where the broker expects seconds: the year is 55,900, which JSON cannot express.
func TestTimeBeyondJSONHidesNoLetter(t *testing.T) {
	t.Parallel()
	vhost := servers.RabbitMQ(t)
	ch := channel(t, vhost.URL)
	if _, err := ch.QueueDeclare("payments.dead", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for id, at := range []time.Time{time.Unix(1_702_483_200_000, 0), time.Unix(1_702_483_200, 0)} {
		put(t, ch, "payments.dead", amqp.Publishing{MessageId: strconv.Itoa(id), AppId: "orders", Timestamp: at})
	}
	for _, output := range []string{"table", "json", "yaml"} {
		got := run([]string{"MSGHANDLER_AMQP_URL=" + vhost.URL},
			"dlq", "list", "--direct", "--queue=payments.dead", "--output="+output)
		got.want(t, 0, "orders", "")
		if strings.Count(got.out, "orders") != 2 {
			t.Errorf("%s shows not both letters:\n%s", output, got.out)
		}
	}
}

// A letter goes where the configuration lets it go, and the name of an entry means one queue on each broker.
func TestReplayKeepsToTheConfiguredExchanges(t *testing.T) {
	t.Parallel()
	vhost := servers.RabbitMQ(t)
	ch := channel(t, vhost.URL)
	for _, queue := range []string{"payments", "payments.dead", "payroll.in"} {
		if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	must.Succeed(t, errors.Join(ch.ExchangeDeclare("payroll", "fanout", true, false, false, false, nil),
		ch.QueueBind("payroll.in", "", "payroll", false, nil)))
	for id, exchange := range []string{"", "payroll"} {
		put(t, ch, "payments.dead", amqp.Publishing{MessageId: strconv.Itoa(id), AppId: "orders", Headers: amqp.Table{
			consumer.HeaderQueue: "payments", consumer.HeaderExchange: exchange, consumer.HeaderRoutingKey: "payments",
		}})
	}
	env := []string{
		"MSGHANDLER_DEAD_LETTERS_PAYMENTS_QUEUE=payments.dead", "MSGHANDLER_DEAD_LETTERS_PAYMENTS_EXCHANGES=(default)",
	}
	dlq := func(args ...string) ran {
		broker := "--amqp.url=" + vhost.URL
		return run(env, append([]string{"dlq", args[0], "--direct", "--queue=payments", broker}, args[1:]...)...)
	}
	const stays = `exchange "payroll" is none of dead_letters.payments.exchanges`
	dlq("replay", "--all", "-n").want(t, 0, "1 would be replayed\n1 dead letter would stay: "+stays, "")
	dlq("replay", "orders/1").want(t, 1, "replayed 0\n", stays)
	dlq("replay", "--all", "--yes").want(t, 1, "replayed 1\n", stays)
	dlq("list").want(t, 0, "orders/1 ", "")
	for queue, want := range map[string]int{"payments": 1, "payments.dead": 1, "payroll.in": 0} {
		if q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil || q.Messages != want {
			t.Errorf("%s has %d messages, want %d: %v", queue, q.Messages, want, err)
		}
	}
}
