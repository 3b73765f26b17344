package rabbitmq_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/lettertest"
	"github.com/msghandler/msghandler/test/servers"
)

func TestSelectedLettersChange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetterQueue(amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeClassic})
	if _, err := b.ch.QueueDeclare("elsewhere", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for id := 1; id <= 5; id++ {
		err := b.ch.PublishWithContext(t.Context(), "", "payments.dead", true, false, amqp.Publishing{
			MessageId: strconv.Itoa(id), AppId: "orders", Headers: amqp.Table{
				consumer.HeaderQueue: "payments", consumer.HeaderExchange: "", consumer.HeaderRoutingKey: "elsewhere",
				consumer.HeaderFirstFailedAt: time.Now().Format(time.RFC3339),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	servers.Eventually(t, patience, "five letters", func() bool { return b.depth("payments.dead") == 5 })
	lettertest.Select(t, b.deadLetters())
	servers.Eventually(t, patience, "one came back", func() bool { return b.depth("elsewhere") == 1 })
}

func TestTextsOfLettersAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetterQueue(amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeClassic})
	if _, err := b.ch.QueueDeclare("elsewhere", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for id, key := range []string{"elsewhere", strings.Repeat("k", 600)} {
		headers := amqp.Table{consumer.HeaderExchange: "", consumer.HeaderRoutingKey: key}
		lettertest.LongHeaders(func(name, value string) { headers[name] = value })
		if err := b.ch.PublishWithContext(t.Context(), "", "payments.dead", true, false, amqp.Publishing{
			MessageId: strconv.Itoa(id), AppId: "orders", Headers: headers,
		}); err != nil {
			t.Fatal(err)
		}
	}
	servers.Eventually(t, patience, "two letters", func() bool { return b.depth("payments.dead") == 2 })
	lettertest.Bound(t, b.deadLetters())
	servers.Eventually(t, patience, "one came back", func() bool { return b.depth("elsewhere") == 1 })
}

// Oldest leaves each letter at its place, or takes none: a look at a list of queues must not turn a queue around.
func TestOldestKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for by, arguments := range map[string]amqp.Table{
		"another program":            {amqp.QueueTypeArg: amqp.QueueTypeClassic},
		"Declare, before RabbitMQ 4": {amqp.QueueTypeArg: amqp.QueueTypeQuorum},
	} {
		t.Run("declared by "+by, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.deadLetterQueue(arguments)
			b.putLetters()
			dead := b.deadLetters()
			if _, err := dead.List(t.Context(), 4); err != nil { // a quorum queue has four letters that were given back
				t.Fatal(err)
			}
			for range 5 {
				l, err := dead.Oldest(t.Context())
				if !errors.Is(err, consumer.ErrLookReorders) && (err != nil || l.ID != "1") {
					t.Fatalf("the oldest is %q, %v", l.ID, err)
				}
			}
			if l, err := dead.List(t.Context(), 1); err != nil || l[0].ID != "1" {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
}
