package amqpconformance

import (
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/test/servers"
)

// exists says whether a queue is there, on a channel of its own, as a missing queue closes the channel. An exclusive
// queue of another connection is there: its owner may have ended a moment ago.
func (f *fixture) exists(queue string) bool {
	f.Helper()
	ch := f.channel()
	defer ch.Close()
	_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	var e *amqp.Error
	if errors.As(err, &e) && e.Code == amqp.NotFound {
		return false
	}
	if errors.As(err, &e) && e.Code == amqp.ResourceLocked {
		return true
	}
	f.must(err)
	return true
}

func (f *fixture) eventuallyGone(queue string) {
	f.Helper()
	servers.Eventually(f, patience, "the end of queue "+queue, func() bool { return !f.exists(queue) })
}

func exclusiveQueue(f *fixture) {
	conn := f.dial()
	ch, err := conn.Channel()
	f.must(err)
	q, err := ch.QueueDeclare("", false, false, true, false, nil)
	f.must(err)
	if len(q.Name) <= len("amq.gen-") || q.Name[:8] != "amq.gen-" {
		f.Errorf("named %q", q.Name)
	}
	c := exceptionCase{
		"another connection's queue", 405,
		"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '" + q.Name,
		func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(q.Name, false, false, true, false, nil)
			return err
		},
	}
	other := f.channel()
	f.expectException(c, other, other.NotifyClose(make(chan *amqp.Error, 1)))
	f.must(conn.Close())
	f.eventuallyGone(q.Name)
}

func autoDeleteQueue(f *fixture) {
	_, err := f.ch.QueueDeclare("q", true, true, false, false, nil)
	f.must(err)
	if !f.exists("q") {
		f.Fatal("gone before it had a consumer")
	}
	_, err = f.ch.Consume("q", "tag", false, false, false, false, nil)
	f.must(err)
	f.must(f.ch.Cancel("tag", false))
	f.eventuallyGone("q")
}

func purgeAndDelete(f *fixture) {
	f.queue("q", nil)
	f.send("q", "1", "2", "3")
	n, err := f.ch.QueuePurge("q", false)
	f.must(err)
	f.expectEqual("purged", n, 3)
	f.send("q", "4")
	n, err = f.ch.QueueDelete("q", false, false, false)
	f.must(err)
	f.expectEqual("deleted", n, 1)
	n, err = f.ch.QueueDelete("q", false, false, false)
	f.must(err)
	f.expectEqual("deleted again", n, 0)
}

func closeReopen(f *fixture) {
	f.queue("q", nil)
	for range 10 {
		conn, err := amqp.Dial(f.url)
		f.must(err)
		ch, err := conn.Channel()
		f.must(err)
		f.must(ch.Confirm(false))
		confirm, err := ch.PublishWithDeferredConfirm("", "q", true, false, amqp.Publishing{})
		f.must(err)
		if !f.confirmed(confirm) {
			f.Fatal("not acknowledged")
		}
		f.must(conn.Close())
	}
	f.eventuallyReady("q", 10)
}

// heartbeats: a client that only sends heartbeats stays connected for longer than its allowed silence.
func heartbeats(f *fixture) {
	conn, err := amqp.DialConfig(f.url, amqp.Config{Heartbeat: 2 * time.Second, Dial: amqp.DefaultDial(patience)})
	f.must(err)
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	select {
	case e := <-closed:
		f.Fatalf("closed: %v", e)
	case <-time.After(8 * time.Second): // the client's library allows three heartbeats of silence
	}
	f.must(conn.Close())
}
