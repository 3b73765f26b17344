package amqpconformance

import (
	"errors"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// exceptionCase is an operation that a broker refuses. Texts are compared up to the name of the virtual host.
type exceptionCase struct {
	name string
	code int
	text string
	do   func(ch *amqp.Channel) error
}

func declares(name string, durable bool, arguments amqp.Table) func(*amqp.Channel) error {
	return func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, durable, false, false, false, arguments)
		return err
	}
}

func declaresExchange(name, kind string) func(*amqp.Channel) error {
	return func(ch *amqp.Channel) error { return ch.ExchangeDeclare(name, kind, true, false, false, false, nil) }
}

func publishes(exchange string, p amqp.Publishing) func(*amqp.Channel) error {
	return func(ch *amqp.Channel) error { return ch.Publish(exchange, "q", false, false, p) }
}

var declarationExceptions = []exceptionCase{
	{
		"queue not durable", 406, "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q'",
		declares("q", false, nil),
	},
	{
		"queue argument", 406, "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q'",
		declares("q", true, amqp.Table{"x-message-ttl": int64(5)}),
	},
	{
		"exchange type", 406, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'e'",
		declaresExchange("e", "direct"),
	},
	{
		"reserved queue", 403, "ACCESS_REFUSED - queue name 'amq.q' contains reserved prefix 'amq.*'",
		declares("amq.q", true, nil),
	},
	{
		"reserved exchange", 403, "ACCESS_REFUSED - exchange name 'amq.e' contains reserved prefix 'amq.*'",
		declaresExchange("amq.e", "topic"),
	},
	{
		"default exchange", 403, "ACCESS_REFUSED - operation not permitted on the default exchange",
		declaresExchange("", "direct"),
	},
	{
		"negative ttl", 406, "PRECONDITION_FAILED - invalid arg 'x-message-ttl'",
		declares("n", true, amqp.Table{"x-message-ttl": int64(-1)}),
	},
	{
		"quorum not durable", 406, "PRECONDITION_FAILED - invalid property 'non-durable' for queue 'n'",
		declares("n", false, amqp.Table{"x-queue-type": "quorum"}),
	},
	{"queue missing", 404, "NOT_FOUND - no queue 'gone'", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive("gone", true, false, false, false, nil)
		return err
	}},
	{"exchange missing", 404, "NOT_FOUND - no exchange 'gone'", func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive("gone", "topic", true, false, false, false, nil)
	}},
	{"bind missing queue", 404, "NOT_FOUND - no queue 'gone'", func(ch *amqp.Channel) error {
		return ch.QueueBind("gone", "k", "e", false, nil)
	}},
	{"bind missing exchange", 404, "NOT_FOUND - no exchange 'gone'", func(ch *amqp.Channel) error {
		return ch.QueueBind("q", "k", "gone", false, nil)
	}},
	{"delete used exchange", 406, "PRECONDITION_FAILED - exchange 'e' in vhost", func(ch *amqp.Channel) error {
		return ch.ExchangeDelete("e", true, false)
	}},
	{"delete full queue", 406, "PRECONDITION_FAILED - queue 'q' in vhost", func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete("q", false, true, false)
		return err
	}},
}

var messageExceptions = []exceptionCase{
	{"publish to missing exchange", 404, "NOT_FOUND - no exchange 'gone'", publishes("gone", amqp.Publishing{})},
	{
		"bad expiration", 406, "PRECONDITION_FAILED - invalid expiration 'soon'",
		publishes("e", amqp.Publishing{Expiration: "soon"}),
	},
	{"consume missing queue", 404, "NOT_FOUND - no queue 'gone'", func(ch *amqp.Channel) error {
		_, err := ch.Consume("gone", "", false, false, false, false, nil)
		return err
	}},
	{"get from missing queue", 404, "NOT_FOUND - no queue 'gone'", func(ch *amqp.Channel) error {
		_, _, err := ch.Get("gone", true)
		return err
	}},
	{"purge missing queue", 404, "NOT_FOUND - no queue 'gone'", func(ch *amqp.Channel) error {
		_, err := ch.QueuePurge("gone", false)
		return err
	}},
	{"unknown delivery", 406, "PRECONDITION_FAILED - unknown delivery tag 7", func(ch *amqp.Channel) error {
		return ch.Ack(7, false)
	}},
}

// unknownType closes the whole connection before RabbitMQ 4.0, and only the channel since then.
func (f *fixture) unknownType() {
	conn := f.dial()
	ch, err := conn.Channel()
	f.must(err)
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	c := exceptionCase{
		"unknown exchange type", 503, "COMMAND_INVALID - unknown exchange type 'odd'", declaresExchange("odd", "odd"),
	}
	if f.since(4, 0) {
		closed = ch.NotifyClose(make(chan *amqp.Error, 1))
		c.code, c.text = 406, "PRECONDITION_FAILED - unknown exchange type 'odd'"
	}
	f.expectException(c, ch, closed)
}

// connectionExceptions close the whole connection.
var connectionExceptions = []exceptionCase{
	{"immediate", 540, "NOT_IMPLEMENTED - immediate=true", func(ch *amqp.Channel) error {
		return ch.Publish("e", "q", false, true, amqp.Publishing{})
	}},
}

func exceptions(f *fixture) {
	f.exchange("e", "topic")
	f.queue("q", nil)
	f.bind("q", "k", "e")
	f.send("q", "so that it is not empty")
	for _, c := range append(declarationExceptions, messageExceptions...) {
		ch := f.channel()
		closed := ch.NotifyClose(make(chan *amqp.Error, 1))
		f.expectException(c, ch, closed)
	}
	f.unknownType()
	for _, c := range connectionExceptions {
		conn := f.dial()
		ch, err := conn.Channel()
		f.must(err)
		f.expectException(c, ch, conn.NotifyClose(make(chan *amqp.Error, 1)))
	}
}

func (f *fixture) expectException(c exceptionCase, ch *amqp.Channel, closed <-chan *amqp.Error) {
	f.Helper()
	// A call may return the exception, or only the fact that the channel is closed: the notification is the same for
	// all.
	_ = c.do(ch)
	e := next(f, "exception for: "+c.name, closed)
	if e.Code != c.code || !strings.HasPrefix(e.Reason, c.text) {
		f.Errorf("%s: got %d %q, want %d %q", c.name, e.Code, e.Reason, c.code, c.text)
	}
}

func exceptionClosesOnlyItsChannel(f *fixture) {
	f.queue("q", nil)
	f.send("q", "1", "2")
	bad := f.channel()
	f.consume(bad, "q")
	f.eventuallyReady("q", 0)
	closed := bad.NotifyClose(make(chan *amqp.Error, 1))
	f.must(bad.Publish("gone", "k", false, false, amqp.Publishing{Body: payload(10)}))
	if e := next(f, "close of the channel", closed); e.Code != amqp.NotFound {
		f.Errorf("closed with %v", e)
	}
	f.eventuallyReady("q", 2) // the unacknowledged message is back
	f.send("q", "still here")
	f.must(f.channel().Close())
}

func badCredentials(f *fixture) {
	uri, err := amqp.ParseURI(f.url)
	f.must(err)
	uri.Password = "wrong"
	f.expectRefused(uri.String(), 403)
}

func unknownVhost(f *fixture) {
	uri, err := amqp.ParseURI(f.url)
	f.must(err)
	uri.Vhost = "elsewhere"
	f.expectRefused(uri.String(), 530)
}

// expectRefused wants no connection. Whether the client sees the code or only the end of the connection depends on how
// far the handshake was.
func (f *fixture) expectRefused(url string, code int) {
	f.Helper()
	conn, err := amqp.DialConfig(url, amqp.Config{Dial: amqp.DefaultDial(10 * time.Second)})
	if err == nil {
		_ = conn.Close()
		f.Fatal("let in")
	}
	var e *amqp.Error
	if !errors.As(err, &e) || e.Code != code {
		f.Errorf("refused with %v, want %d", err, code)
	}
}
