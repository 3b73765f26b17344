package amqpconformance

import (
	"reflect"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/test/servers"
)

func (f *fixture) expectEqual(what string, got, want any) {
	f.Helper()
	if !reflect.DeepEqual(got, want) {
		f.Fatalf("%s:\n got %#v\nwant %#v", what, got, want)
	}
}

func requeue(f *fixture) {
	f.queue("q", nil)
	f.send("q", "1", "2", "3")
	f.must(f.ch.Qos(1, 0, false))
	deliveries := f.consume(f.ch, "q")
	m := next(f, "delivery", deliveries)
	if m.Redelivered {
		f.Error("a first delivery is flagged as redelivered")
	}
	f.must(m.Nack(false, true))
	m = next(f, "delivery", deliveries)
	f.expectBody(m, "1") // back in its place
	if !m.Redelivered {
		f.Error("not flagged after a nack")
	}
	f.must(m.Reject(true))
	m = next(f, "delivery", deliveries)
	f.expectBody(m, "1")
	f.must(m.Nack(false, false))
	f.expectBody(next(f, "delivery", deliveries), "2")
}

func ackingTwice(f *fixture) {
	f.queue("q", nil)
	f.send("q", "1")
	closed := f.ch.NotifyClose(make(chan *amqp.Error, 1))
	m, _, err := f.ch.Get("q", false)
	f.must(err)
	f.must(m.Ack(false))
	f.must(m.Ack(false))
	if e := next(f, "close of the channel", closed); e.Code != amqp.PreconditionFailed {
		f.Errorf("got %v", e)
	}
}

func prefetch(f *fixture) {
	f.queue("q", nil)
	for range 20 {
		f.send("q", "x")
	}
	ch := f.channel()
	f.must(ch.Qos(5, 0, false))
	deliveries := f.consume(ch, "q")
	var last amqp.Delivery
	for range 5 {
		last = next(f, "delivery", deliveries)
	}
	f.eventuallyReady("q", 15)
	f.quiet(ch, deliveries)
	f.must(last.Ack(true)) // all five
	for range 5 {
		next(f, "delivery", deliveries)
	}
	f.eventuallyReady("q", 10)
	f.quiet(ch, deliveries)
	f.must(ch.Close())
	f.eventuallyReady("q", 15) // the unacknowledged message is back
}

func consumersTakeTurns(f *fixture) {
	f.queue("q", nil)
	first, second := f.channel(), f.channel()
	f.must(first.Qos(20, 0, false))
	f.must(second.Qos(20, 0, false))
	a, b := f.consume(first, "q"), f.consume(second, "q")
	for range 10 {
		f.send("q", "x")
	}
	for range 5 {
		next(f, "delivery of the first", a)
		next(f, "delivery of the second", b)
	}
}

func cancelledConsumer(f *fixture) {
	f.queue("q", nil)
	f.send("q", "1")
	deliveries, err := f.ch.Consume("q", "tag", false, false, false, false, nil)
	f.must(err)
	m := next(f, "delivery", deliveries)
	f.must(f.ch.Cancel("tag", false))
	if _, open := <-deliveries; open {
		f.Fatal("delivered after cancel")
	}
	f.send("q", "2")
	f.eventuallyReady("q", 1)
	f.must(m.Nack(false, true)) // a delivery outlives its consumer
	f.eventuallyReady("q", 2)
	f.expectBody(f.fetch("q"), "1")
}

func deletedQueueCancels(f *fixture) {
	f.queue("q", nil)
	cancelled := f.ch.NotifyCancel(make(chan string, 1))
	deliveries, err := f.ch.Consume("q", "tag", false, false, false, false, nil)
	f.must(err)
	other := f.channel()
	_, err = other.QueueDelete("q", false, false, false)
	f.must(err)
	if tag := next(f, "cancel", cancelled); tag != "tag" {
		f.Errorf("cancelled %q", tag)
	}
	servers.Eventually(f, patience, "the end of the deliveries", func() bool {
		select {
		case _, open := <-deliveries:
			return !open
		default:
			return false
		}
	})
}

func exclusiveConsumer(f *fixture) {
	f.queue("q", nil)
	_, err := f.ch.Consume("q", "mine", false, true, false, false, nil)
	f.must(err)
	c := exceptionCase{
		"second consumer", 403, "ACCESS_REFUSED - queue 'q' in vhost",
		func(ch *amqp.Channel) error {
			_, err := ch.Consume("q", "", false, false, false, false, nil)
			return err
		},
	}
	other := f.channel()
	f.expectException(c, other, other.NotifyClose(make(chan *amqp.Error, 1)))
	f.must(f.ch.Cancel("mine", false))
	f.consume(f.channel(), "q")
}
