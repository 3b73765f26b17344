package rabbitmq_test

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/servers"
)

func TestConsumerPromises(t *testing.T) {
	t.Parallel()
	consumertest.Run(t, func(t *testing.T) consumertest.Broker { return fixture{newBench(t)} })
}

// fixture is a virtual host as consumertest.Broker.
type fixture struct{ *bench }

func (f fixture) Run(o consumertest.Options, h consumer.HandlerFunc) (stop func() error) {
	f.Helper()
	config := f.delayed(20*time.Millisecond, 40*time.Millisecond)
	config.Retry = []time.Duration{10 * time.Millisecond}
	config.Concurrency, config.StopTimeout = o.Concurrency, o.StopTimeout
	config.Dedup, config.Observer, config.Language = o.Dedup, o.Observer, o.Language
	config.Prefetch, config.DepthInterval = o.Prefetch, 20*time.Millisecond
	if o.Logger != nil {
		config.Logger = o.Logger
	}
	return f.start(config, h)
}

func (f fixture) Publish(ids ...string) {
	f.Helper()
	for _, id := range ids {
		err := f.ch.PublishWithContext(f.Context(), "orders", "order.paid", true, false, amqp.Publishing{
			MessageId: id, AppId: "shop", ContentType: "text/plain", Body: []byte("body of " + id),
			DeliveryMode: amqp.Persistent, Timestamp: time.Unix(consumertest.PublishedAt, 0),
			Headers: amqp.Table{"msghandler-attempt": int64(2), "tenant": "eu"},
		})
		if err != nil {
			f.Fatal(err)
		}
	}
}

func (f fixture) Origin() (queue, exchange, routingKey string) {
	return "payments", "orders", "order.paid"
}

func (f fixture) DeadLetters() *consumer.DeadLetters { f.Helper(); return f.deadLetters() }

// Bury uses a classic queue, which keeps the order of its letters, and whose oldest letter can be looked at.
func (f fixture) Bury(id string, headers map[string]string) {
	f.Helper()
	f.deadLetterQueue(amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeClassic})
	if _, err := f.ch.QueueDeclare("elsewhere", true, false, false, false, nil); err != nil {
		f.Fatal(err)
	}
	table := amqp.Table{
		consumer.HeaderQueue: "payments", consumer.HeaderExchange: "", consumer.HeaderRoutingKey: "elsewhere",
		consumer.HeaderFirstFailedAt: time.Now().Format(time.RFC3339),
	}
	for name, value := range headers {
		table[name] = value
	}
	before := f.depth("payments.dead")
	err := f.ch.PublishWithContext(f.Context(), "", "payments.dead", true, false, amqp.Publishing{
		MessageId: id, AppId: "shop", Body: []byte("body of " + id), Headers: table,
	})
	if err != nil {
		f.Fatal(err)
	}
	servers.Eventually(f, patience, "the letter is there", func() bool { return f.depth("payments.dead") > before })
}
