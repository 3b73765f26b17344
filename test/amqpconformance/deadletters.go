package amqpconformance

import (
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// grave declares an exchange and a queue for the dead.
func (f *fixture) grave() {
	f.Helper()
	f.exchange("dlx", "fanout")
	f.queue("grave", nil)
	f.bind("grave", "", "dlx")
}

// expectDeath wants a message whose latest death was that, and gives the entry of x-death.
func (f *fixture) expectDeath(m amqp.Delivery, queue, reason string, count int64) amqp.Table {
	f.Helper()
	deaths, ok := m.Headers["x-death"].([]any)
	if !ok || len(deaths) == 0 {
		f.Fatalf("no x-death in %v", m.Headers)
	}
	death, ok := deaths[0].(amqp.Table)
	if !ok {
		f.Fatalf("x-death holds a %T", deaths[0])
	}
	if death["queue"] != queue || death["reason"] != reason || death["count"] != count {
		f.Fatalf("died as %v, want queue %s, reason %s, count %d", death, queue, reason, count)
	}
	if at, ok := death["time"].(time.Time); !ok || time.Since(at) > time.Hour {
		f.Errorf("died at %v", death["time"])
	}
	return death
}

func queueTTL(f *fixture) {
	f.grave()
	f.exchange("e", "topic")
	f.queue("q", amqp.Table{
		"x-message-ttl": int32(100), "x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "dead",
	})
	f.bind("q", "order.#", "e")
	f.publish("e", "order.created",
		amqp.Publishing{Body: []byte("late"), MessageId: "id", Headers: amqp.Table{"own": "x"}})
	m := f.fetch("grave")
	f.expectBody(m, "late")
	death := f.expectDeath(m, "q", "expired", 1)
	f.expectEqual("exchange", death["exchange"], "e")
	f.expectEqual("routing keys", death["routing-keys"], []any{"order.created"})
	f.expectEqual("delivery", []any{m.Exchange, m.RoutingKey, m.MessageId, m.Headers["own"]},
		[]any{"dlx", "dead", "id", "x"})
}

func messageTTL(f *fixture) {
	f.grave()
	f.queue("q", amqp.Table{"x-dead-letter-exchange": "dlx"})
	f.publish("", "q", amqp.Publishing{Body: []byte("short"), Expiration: "100"})
	f.send("q", "stays")
	m := f.fetch("grave")
	f.expectBody(m, "short")
	death := f.expectDeath(m, "q", "expired", 1)
	f.expectEqual("original expiration", death["original-expiration"], "100")
	f.expectEqual("expiration", m.Expiration, "")
	f.expectEqual("routing key", m.RoutingKey, "q")
	f.eventuallyReady("q", 1)
}

func rejectedDeadLetter(f *fixture) {
	f.grave()
	f.queue("q", amqp.Table{"x-dead-letter-exchange": "dlx"})
	f.send("q", "1", "2", "3")
	for i := range 3 {
		m, ok, err := f.ch.Get("q", false)
		f.must(err)
		if !ok {
			f.Fatal("empty")
		}
		if i == 0 {
			f.must(m.Reject(false))
		} else {
			f.must(m.Nack(false, false))
		}
		dead := f.fetch("grave")
		f.expectBody(dead, strconv.Itoa(i+1))
		f.expectDeath(dead, "q", "rejected", 1)
	}
}

func rejectedTogether(f *fixture) {
	f.grave()
	f.queue("q", amqp.Table{"x-dead-letter-exchange": "dlx"})
	f.send("q", "1", "2", "3", "4")
	deliveries := f.consume(f.ch, "q")
	var third amqp.Delivery
	for range 3 {
		third = next(f, "delivery", deliveries)
	}
	f.must(third.Nack(true, false))
	for _, want := range []string{"1", "2", "3"} {
		f.expectBody(f.fetch("grave"), want)
	}
	f.must(next(f, "delivery", deliveries).Ack(true))
}

// retryQueue is how consumers wait before they try again: rejected messages rest in a second queue and come back.
func retryQueue(f *fixture) {
	f.queue("work", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "rest"})
	f.queue("rest", amqp.Table{
		"x-message-ttl": int32(50), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work",
	})
	f.send("work", "again")
	deliveries := f.consume(f.ch, "work")
	for round := range int64(3) {
		m := next(f, "delivery", deliveries)
		f.expectBody(m, "again")
		if m.Redelivered {
			f.Error("flagged as redelivered, though it came anew")
		}
		if round > 0 {
			f.expectDeath(m, "rest", "expired", round)
			deaths := m.Headers["x-death"].([]any)
			f.expectEqual("entries of x-death", len(deaths), 2)
			second := deaths[1].(amqp.Table)
			f.expectEqual("second entry", []any{second["queue"], second["reason"], second["count"]},
				[]any{"work", "rejected", round})
		}
		f.must(m.Reject(false))
	}
}

// circleEnds: a message that expires from queue to queue is dropped where it would start over. On a second round the
// witness would see the message again before a later message comes by.
func circleEnds(f *fixture) {
	f.exchange("back", "fanout")
	f.queue("a", amqp.Table{"x-message-ttl": int32(20), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "b"})
	f.queue("b", amqp.Table{"x-message-ttl": int32(20), "x-dead-letter-exchange": "back"})
	f.queue("witness", nil)
	f.bind("a", "", "back")
	f.bind("witness", "", "back")
	for _, body := range []string{"1", "2", "3"} {
		f.send("a", body)
		f.expectBody(f.fetch("witness"), body)
	}
}

// oneExchange: events, waiting messages and dead letters of two queues go through one topic exchange, by key.
func oneExchange(f *fixture) {
	f.exchange("events", "topic")
	toGrave := amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-exchange": "events", "x-dead-letter-routing-key": "dead",
	}
	for queue, key := range map[string]string{"created": "order.created", "timeout": "order.timeout"} {
		f.queue(queue, toGrave)
		f.bind(queue, key, "events")
	}
	f.queue("grave", amqp.Table{"x-queue-type": "quorum"})
	f.bind("grave", "dead", "events")
	f.queue("delay", amqp.Table{
		"x-queue-type": "quorum", "x-message-ttl": int32(50), "x-dead-letter-exchange": "events",
		"x-dead-letter-routing-key": "order.timeout", "x-dead-letter-strategy": "at-least-once",
		"x-overflow": "reject-publish",
	})
	f.bind("delay", "order.timeout.delay", "events")
	for _, c := range []struct{ key, queue string }{{"order.created", "created"}, {"order.timeout.delay", "timeout"}} {
		if !f.publish("events", c.key, amqp.Publishing{Body: []byte(c.queue), DeliveryMode: amqp.Persistent}) {
			f.Fatalf("%s was not acknowledged", c.key)
		}
		m := next(f, "delivery", f.consume(f.ch, c.queue))
		f.expectBody(m, c.queue)
		f.must(m.Reject(false))
		dead := f.fetch("grave")
		f.expectBody(dead, c.queue)
		f.expectEqual("delivery", []any{dead.Exchange, dead.RoutingKey}, []any{"events", "dead"})
		death := f.expectDeath(dead, c.queue, "rejected", 1)
		f.expectEqual("origin", []any{death["exchange"], death["routing-keys"]},
			[]any{"events", []any{"order." + c.queue}})
	}
	f.eventuallyReady("delay", 0)
}

func quorumDeliveries(f *fixture) {
	f.queue("q", amqp.Table{"x-queue-type": "quorum"})
	f.send("q", "1")
	deliveries := f.consume(f.ch, "q")
	for round := range int64(3) {
		m := next(f, "delivery", deliveries)
		if round > 0 {
			f.expectEqual("x-delivery-count", m.Headers["x-delivery-count"], round)
		}
		f.expectEqual("redelivered", m.Redelivered, round > 0)
		f.must(m.Reject(true))
	}
}

// quorumNacks: a message given back by a nack counts as a failed delivery before RabbitMQ 4.3, and does not count
// since then.
func quorumNacks(f *fixture) {
	f.queue("q", amqp.Table{"x-queue-type": "quorum"})
	f.send("q", "1")
	deliveries := f.consume(f.ch, "q")
	for round := range int64(3) {
		m := next(f, "delivery", deliveries)
		f.expectEqual("redelivered", m.Redelivered, round > 0)
		counts := []any{m.Headers["x-delivery-count"], m.Headers["x-acquired-count"]}
		switch {
		case round == 0:
			f.expectEqual("counts of the first delivery", counts, []any{nil, nil})
		case f.embedded() || f.since(4, 3):
			f.expectEqual("deliveries, acquisitions", counts, []any{nil, round})
		default:
			f.expectEqual("deliveries, acquisitions", counts, []any{round, nil})
		}
		f.must(m.Nack(false, true))
	}
}

func deliveryLimit(f *fixture) {
	f.grave()
	f.queue("q", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(2), "x-dead-letter-exchange": "dlx"})
	f.send("q", "poison")
	deliveries := f.consume(f.ch, "q")
	for range 3 {
		m := next(f, "delivery", deliveries)
		f.must(m.Reject(true))
	}
	m := f.fetch("grave")
	f.expectBody(m, "poison")
	f.expectDeath(m, "q", "delivery_limit", 1)
}
