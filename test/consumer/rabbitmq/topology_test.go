package rabbitmq_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	rabbit "github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/servers"
)

// orderTopology has an exchange for events, waiting messages and dead letters of two queues.
func orderTopology() rabbit.Topology {
	return rabbit.Topology{
		Exchange: "order.events.exchange", DeadLetterKey: "order.dlq", DeadLetterQueue: "order.dlq.queue",
		Queues: []rabbit.TopologyQueue{
			{Name: "inventory.update.queue", BindingKeys: []string{"order.created"}},
			{
				Name: "order.timeout.queue", BindingKeys: []string{"order.timeout"},
				Hold: &rabbit.Hold{
					Queue: "order.timeout.delay.queue", BindingKey: "order.timeout.delay", Delay: 100 * time.Millisecond,
					ReleaseKey: "order.timeout",
				},
			},
		},
	}
}

// onEachBroker runs a test on RabbitMQ and on the embedded broker.
func onEachBroker(t *testing.T, test func(b *bench)) {
	t.Run("rabbitmq", func(t *testing.T) {
		t.Parallel()
		test(newBench(t))
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		broker := amqpbroker.New(amqpbroker.Config{})
		t.Cleanup(func() {
			if err := broker.Close(); err != nil {
				t.Error(err)
			}
		})
		address, err := broker.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		test(newBenchAt(t, &servers.Vhost{URL: "amqp://guest:guest@" + address + "/"}))
	})
}

func (b *bench) publishTo(exchange, key, id string) {
	b.Helper()
	err := b.ch.PublishWithContext(b.Context(), exchange, key, true, false, amqp.Publishing{
		MessageId: id, AppId: "orders", DeliveryMode: amqp.Persistent, Body: []byte(id),
	})
	if err != nil {
		b.Fatal(err)
	}
}

// part is the configuration of a consumer of a topology's queue.
func (b *bench) part(topology rabbit.Topology, queue string) rabbit.Config {
	b.Helper()
	declare, err := topology.For(queue)
	if err != nil {
		b.Fatal(err)
	}
	return rabbit.Config{
		URL: b.vhost.URL, Queue: queue, Declare: declare, Retry: []time.Duration{time.Millisecond},
		Logger: slog.New(slog.DiscardHandler),
	}
}

func TestTopologySharesOneDeadLetterQueue(t *testing.T) {
	t.Parallel()
	onEachBroker(t, func(b *bench) {
		topology := orderTopology()
		for range 2 { // the second time everything is there
			if err := topology.Apply(b.Context(), b.vhost.URL, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.publishTo("order.events.exchange", "order.created", "created")
		b.publishTo("order.events.exchange", "order.timeout.delay", "timeout")
		var fixed atomic.Bool
		handled := make(chan *consumer.Message, 10)
		observed := &consumertest.Depths{}
		for _, queue := range []string{"inventory.update.queue", "order.timeout.queue"} {
			config := b.part(topology, queue)
			config.Observer, config.DepthInterval = observed, 20*time.Millisecond
			b.start(config, func(_ context.Context, m *consumer.Message) error {
				if !fixed.Load() {
					return consumer.Reject(errors.New("no such event"))
				}
				handled <- m
				return nil
			})
		}
		servers.Eventually(b, patience, "two dead letters of two queues", func() bool {
			return b.depth("order.dlq.queue") == 2 && observed.Dead("order.dlq.queue") == 2
		})
		if observed.Dead("order.timeout.queue") != 0 {
			b.Error("the common dead letters are reported for one of the queues")
		}
		dead, err := rabbit.NewDeadLetters(b.vhost.URL, nil, "order.dlq.queue")
		if err != nil {
			b.Fatal(err)
		}
		l, err := dead.Show(b.Context(), "orders/timeout")
		if err != nil || l.Queue != "order.timeout.queue" || l.RoutingKey != "order.timeout" ||
			l.Exchange != topology.Exchange || l.Reason != "rejected: no such event" {
			b.Errorf("%+v, %v", l, err)
		}
		servers.Eventually(b, patience, "given back", func() bool { return b.depth("order.dlq.queue") == 2 })
		fixed.Store(true)
		if n, err := dead.Replay(b.Context(), consumer.Anywhere); n != 2 || err != nil {
			b.Errorf("replayed %d, %v", n, err)
		}
		for range 2 {
			m := take(b, handled, "a replayed event")
			if m.Attempt != 2 || (m.ID == "timeout") != (m.Queue == "order.timeout.queue") {
				b.Errorf("replayed %+v", m)
			}
		}
		if b.depth("order.dlq.queue")+b.depth("order.timeout.delay.queue") != 0 {
			b.Error("a message is left")
		}
	})
}

// The broker dead-letters a message that waited before: a replay must not wait again.
func TestHeldMessagesReplayWaitsNoMore(t *testing.T) {
	t.Parallel()
	onEachBroker(t, func(b *bench) {
		topology := orderTopology()
		topology.DeliveryLimit = 2
		stop := b.start(b.part(topology, "order.timeout.queue"), func(context.Context, *consumer.Message) error {
			return errors.New("no")
		})
		b.publishTo("order.events.exchange", "order.timeout.delay", "1")
		servers.Eventually(b, patience, "a dead letter", func() bool { return b.depth("order.dlq.queue") == 1 })
		if err := stop(); err != nil {
			b.Fatal(err)
		}
		dead, err := rabbit.NewDeadLetters(b.vhost.URL, nil, "order.dlq.queue")
		if err != nil {
			b.Fatal(err)
		}
		l, err := dead.Show(b.Context(), "orders/1")
		if err != nil || l.Queue != "order.timeout.queue" || l.RoutingKey != "order.timeout" || l.Reason != "delivery_limit" {
			b.Errorf("%+v, %v", l, err)
		}
	})
}

func TestTopologyIsChecked(t *testing.T) {
	t.Parallel()
	good := orderTopology()
	if _, err := good.For("inventory.update.queue"); err != nil {
		t.Fatal(err)
	}
	if _, err := good.For("other"); err == nil {
		t.Error("a queue that is not described")
	}
	for want, change := range map[string]func(*rabbit.Topology){
		"Exchange, DeadLetterKey":  func(c *rabbit.Topology) { c.DeadLetterKey = "" },
		"occurs twice":             func(c *rabbit.Topology) { c.Queues[0].Name = c.Queues[1].Name },
		"has no BindingKeys":       func(c *rabbit.Topology) { c.Queues[0].BindingKeys = nil },
		"would come back":          func(c *rabbit.Topology) { c.Queues[0].BindingKeys = []string{"order.#"} },
		"come back to the queue":   func(c *rabbit.Topology) { c.Queues[0].BindingKeys = []string{"*.dlq"} },
		"must route by key":        func(c *rabbit.Topology) { c.ExchangeType = "fanout" },
		"without the delay":        func(c *rabbit.Topology) { c.Queues[1].BindingKeys = []string{"order.timeout.#"} },
		"would never arrive":       func(c *rabbit.Topology) { c.Queues[1].Hold.ReleaseKey = "order.paid" },
		"would wait for ever":      func(c *rabbit.Topology) { c.Queues[1].Hold.BindingKey = "order.#" },
		"back after the delay":     func(c *rabbit.Topology) { c.Queues[1].Hold.BindingKey = "*.dlq" },
		"whole milliseconds":       func(c *rabbit.Topology) { c.Queues[1].Hold.Delay = time.Microsecond },
		"Hold needs":               func(c *rabbit.Topology) { c.Queues[1].Hold.BindingKey = "" },
		"the queue name \"\"":      func(c *rabbit.Topology) { c.Queues[1].Hold.Queue = "" },
		"Declare.QueueType is":     func(c *rabbit.Topology) { c.QueueType = "stream" },
		"Declare.DeliveryLimit is": func(c *rabbit.Topology) { c.DeliveryLimit = -1 },
	} {
		topology := orderTopology()
		change(&topology)
		_, err := topology.For("inventory.update.queue")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if applied := topology.Apply(t.Context(), "amqp://127.0.0.1:1/", nil); err == nil || applied == nil ||
			applied.Error() != err.Error() {
			t.Errorf("%s: Apply: %v", want, applied)
		}
	}
	for want, declare := range map[string]rabbit.Declare{
		"DeadLetterKey is missing": {Exchange: "e", BindingKeys: []string{"k"}, DeadLetterExchange: "e"},
		"without a DeadLetter":     {Exchange: "e", BindingKeys: []string{"k"}, DeadLetterKey: "dead"},
	} {
		_, err := rabbit.New(rabbit.Config{URL: "amqp://127.0.0.1:1/", Queue: "q", Declare: &declare})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
