// Package amqpconformance is a test suite of the broker behavior that msghandler depends on. It runs against
// RabbitMQ, which shows that the suite asks for the right things, and against the embedded broker.
//
// Where versions of RabbitMQ differ, the suite expects each version's own behavior. The embedded broker behaves like
// the oldest supported version.
package amqpconformance

import (
	"bytes"
	"errors"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/ground/versions"
	"github.com/msghandler/msghandler/test/servers"
)

// patience bounds every wait for a broker. Only a failing test uses all of it.
const patience = 20 * time.Second

// suite is all tests by their names.
var suite = map[string]func(*fixture){
	"topic routing":                         topicRouting,
	"fanout, direct and default exchange":   otherRouting,
	"headers routing":                       headersRouting,
	"unbinding":                             unbinding,
	"exceptions":                            exceptions,
	"an exception closes only its channel":  exceptionClosesOnlyItsChannel,
	"bad credentials":                       badCredentials,
	"unknown virtual host":                  unknownVhost,
	"confirms, and order":                   confirms,
	"a return comes before its ack":         returnThenAck,
	"returns in a pipeline":                 returnsInAPipeline,
	"many channels":                         manyChannels,
	"large messages":                        largeMessages,
	"properties":                            propertiesSurvive,
	"nack, reject and requeue":              requeue,
	"acking twice":                          ackingTwice,
	"prefetch":                              prefetch,
	"consumers take turns":                  consumersTakeTurns,
	"cancelled consumer":                    cancelledConsumer,
	"deleted queue cancels its consumers":   deletedQueueCancels,
	"exclusive consumer":                    exclusiveConsumer,
	"queue time-to-live and dead-lettering": queueTTL,
	"message time-to-live":                  messageTTL,
	"rejected messages are dead-lettered":   rejectedDeadLetter,
	"rejected together":                     rejectedTogether,
	"a retry queue, round and round":        retryQueue,
	"a circle without a reject ends":        circleEnds,
	"one exchange for events and the dead":  oneExchange,
	"quorum queue counts deliveries":        quorumDeliveries,
	"quorum queue and nacks":                quorumNacks,
	"delivery limit":                        deliveryLimit,
	"exclusive queue":                       exclusiveQueue,
	"auto-delete queue":                     autoDeleteQueue,
	"purge and delete":                      purgeAndDelete,
	"closing and opening again":             closeReopen,
	"heartbeats keep an idle connection":    heartbeats,
}

// Run runs the suite. start returns the URL of a virtual host with no queues in it, for the time of one subtest.
func Run(t *testing.T, start func(t *testing.T) string) {
	for name, test := range suite {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fixture{T: t, url: start(t)}
			f.conn = f.dial()
			f.ch = f.channel()
			test(f)
		})
	}
}

// fixture is what each test starts with: a connection and a channel of its own.
type fixture struct {
	*testing.T
	url  string
	conn *amqp.Connection
	ch   *amqp.Channel
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) dial() *amqp.Connection {
	f.Helper()
	conn, err := amqp.DialConfig(f.url, amqp.Config{Heartbeat: 5 * time.Second, Dial: amqp.DefaultDial(patience)})
	f.must(err)
	f.Cleanup(func() {
		if err := conn.Close(); err != nil && !errors.Is(err, amqp.ErrClosed) {
			f.Error("close:", err)
		}
	})
	return conn
}

func (f *fixture) channel() *amqp.Channel {
	f.Helper()
	ch, err := f.conn.Channel()
	f.must(err)
	return ch
}

// embedded reports whether the broker is the embedded one. The embedded broker counts deliveries as RabbitMQ 4.3
// does, and is like the oldest supported version otherwise.
func (f *fixture) embedded() bool { return f.conn.Properties["product"] != versions.RabbitMQ.Name }

// since reports whether the broker is RabbitMQ of that version or a later version.
func (f *fixture) since(major, minor int) bool {
	f.Helper()
	about := f.conn.Properties
	text, _ := about["version"].(string)
	version, known := versions.Parse(text)
	if f.embedded() {
		return false
	}
	if !known {
		f.Fatalf("the broker says of itself %v", about)
	}
	return !version.Before(versions.Version{major, minor})
}

func (f *fixture) exchange(name, kind string) {
	f.Helper()
	f.must(f.ch.ExchangeDeclare(name, kind, true, false, false, false, nil))
}

func (f *fixture) queue(name string, arguments amqp.Table) {
	f.Helper()
	_, err := f.ch.QueueDeclare(name, true, false, false, false, arguments)
	f.must(err)
}

func (f *fixture) bind(queue, key, exchange string) {
	f.Helper()
	f.must(f.ch.QueueBind(queue, key, exchange, false, nil))
}

// publish publishes and waits for the confirm.
func (f *fixture) publish(exchange, key string, p amqp.Publishing) bool {
	f.Helper()
	ch := f.channel()
	defer ch.Close()
	f.must(ch.Confirm(false))
	confirm, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, p)
	f.must(err)
	return f.confirmed(confirm)
}

// send publishes one body to a queue and waits until the queue has the message.
func (f *fixture) send(queue string, bodies ...string) {
	f.Helper()
	for _, body := range bodies {
		if !f.publish("", queue, amqp.Publishing{Body: []byte(body)}) {
			f.Fatalf("%q to queue %s was not acknowledged", body, queue)
		}
	}
}

func (f *fixture) confirmed(confirm *amqp.DeferredConfirmation) bool {
	f.Helper()
	select {
	case <-confirm.Done():
		return confirm.Acked()
	case <-time.After(patience):
		f.Fatalf("no confirm for publish %d", confirm.DeliveryTag)
		return false
	}
}

func (f *fixture) consume(ch *amqp.Channel, queue string) <-chan amqp.Delivery {
	f.Helper()
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	f.must(err)
	return deliveries
}

// next is the next value of a client library's channel.
func next[T any](f *fixture, what string, from <-chan T) T {
	f.Helper()
	select {
	case v, open := <-from:
		if !open {
			f.Fatalf("%s: the channel is closed", what)
		}
		return v
	case <-time.After(patience):
		f.Fatalf("no %s", what)
		panic("not reached")
	}
}

// fetch polls a queue until there is a message.
func (f *fixture) fetch(queue string) amqp.Delivery {
	f.Helper()
	var fetched amqp.Delivery
	servers.Eventually(f, patience, "a message in "+queue, func() bool {
		m, ok, err := f.ch.Get(queue, true)
		f.must(err)
		fetched = m
		return ok
	})
	return fetched
}

// ready is the number of ready messages in a queue.
func (f *fixture) ready(queue string) int {
	f.Helper()
	q, err := f.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	f.must(err)
	return q.Messages
}

func (f *fixture) eventuallyReady(queue string, want int) {
	f.Helper()
	servers.Eventually(f, patience, strconv.Itoa(want)+" messages ready in "+queue, func() bool {
		return f.ready(queue) == want
	})
}

// quiet fails when anything was delivered. The round trip before lets earlier traffic arrive.
func (f *fixture) quiet(ch *amqp.Channel, deliveries <-chan amqp.Delivery) {
	f.Helper()
	f.must(ch.ExchangeDeclarePassive("amq.direct", "direct", true, false, false, false, nil))
	select {
	case m := <-deliveries:
		f.Fatalf("delivered %q, which should wait", m.Body)
	default:
	}
}

func (f *fixture) expectBody(m amqp.Delivery, want string) {
	f.Helper()
	if string(m.Body) != want {
		f.Fatalf("got %q, want %q", m.Body, want)
	}
}

func payload(n int) []byte { return bytes.Repeat([]byte("x"), n) }
