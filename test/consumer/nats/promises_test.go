package nats_test

import (
	"maps"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
)

func TestConsumerPromises(t *testing.T) {
	t.Parallel()
	consumertest.Run(t, func(t *testing.T) consumertest.Broker { return fixture{newWorld(t)} })
}

// fixture is a server as consumertest.Broker.
type fixture struct{ w *world }

func (f fixture) Run(o consumertest.Options, h consumer.HandlerFunc) (stop func() error) {
	f.w.t.Helper()
	config := f.w.config()
	config.MaxDeliveries, config.Concurrency, config.StopTimeout = 1+consumertest.Retries, o.Concurrency, o.StopTimeout
	config.Dedup, config.Observer, config.Language, config.Logger = o.Dedup, o.Observer, o.Language, o.Logger
	config.Prefetch, config.DepthInterval = o.Prefetch, 20*time.Millisecond
	return f.w.run(config, h)
}

func (f fixture) Publish(ids ...string) {
	f.w.t.Helper()
	for _, id := range ids {
		f.put("orders.paid", "body of "+id, map[string]string{
			"msghandler-id": id, "msghandler-producer": "shop", "msghandler-attempt": "2", "tenant": "eu",
			"content-type": "text/plain", "msghandler-timestamp": "2023-11-14T22:13:20Z",
		})
	}
}

func (f fixture) put(subject, body string, headers map[string]string) {
	f.w.t.Helper()
	m := client.NewMsg(subject)
	m.Data = []byte(body)
	for name, value := range headers {
		m.Header.Set(name, value)
	}
	if _, err := f.w.js.PublishMsg(f.w.t.Context(), m); err != nil {
		f.w.t.Fatal(err)
	}
}

func (f fixture) Origin() (queue, exchange, routingKey string) {
	return "payments", "ORDERS", "orders.paid"
}

func (f fixture) DeadLetters() *consumer.DeadLetters { f.w.t.Helper(); return f.w.deadLetters() }

func (f fixture) Bury(id string, headers map[string]string) {
	f.w.t.Helper()
	all := map[string]string{
		"msghandler-id": id, "msghandler-producer": "shop", "msghandler-attempt": "1", consumer.HeaderQueue: "payments",
		consumer.HeaderExchange: "ORDERS", consumer.HeaderRoutingKey: "orders.paid", consumer.HeaderDeadReason: "no JSON",
	}
	maps.Copy(all, headers)
	f.put("DEAD.orders.paid", "body of "+id, all)
}
