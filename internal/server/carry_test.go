package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// takesAll accepts every target.
type takesAll struct{}

func (takesAll) Resolve(_, named string) (string, error) { return named, nil }

// judge is a server as far as it checks requests.
var judge = &Server{config: Config{Targets: takesAll{}}.WithDefaults().withHooks()}

// accept checks a request as SendHalfMessage does.
func accept(r *msghandlerv1.SendHalfMessageRequest) (halfmsg.Message, *invalidError) {
	c := &check{}
	o, err := judge.origin(context.Background(), c, r)
	if err != nil {
		return halfmsg.Message{}, invalid("callback_target", err.Error())
	}
	c.path = "message"
	m := judge.build(c, o, r.GetMessage())
	return m, c.found
}

// carrier brings messages through a broker, with the coordinator's own publisher, and checks the deliveries.
type carrier struct {
	publisher *rabbitmq.Publisher
	trouble   *lines
	topology  *amqp.Channel
}

// lines are the publisher's warnings and errors: among them, that the broker has closed a channel or a connection.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

func newCarrier(t testing.TB, url string) *carrier {
	t.Helper()
	c := &carrier{trouble: &lines{}}
	connection, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	if c.topology, err = connection.Channel(); err != nil {
		t.Fatal(err)
	}
	c.publisher, err = rabbitmq.New(rabbitmq.Config{
		URL: url, ConfirmTimeout: 10 * time.Second, Window: 1000,
		Logger: slog.New(slog.NewTextHandler(c.trouble, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.publisher.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	servers.Eventually(t, 30*time.Second, "the publisher is ready", func() bool { return c.publisher.Ready() == nil })
	c.trouble.take()
	return c
}

// kinds are the exchanges that a message can meet.
var kinds = []string{amqp.ExchangeFanout, amqp.ExchangeDirect, amqp.ExchangeTopic, amqp.ExchangeHeaders}

// carry brings a message through an exchange of a kind, or through the default exchange. The broker must acknowledge
// every message, close nothing, and deliver the message unchanged.
func (c *carrier) carry(t *testing.T, m *halfmsg.Message, kind string, attempt int) {
	t.Helper()
	queue, remove := c.route(t, m, kind)
	defer remove()
	sent := halfmsg.Publishing{
		Name: m.Name, Exchange: m.Exchange, RoutingKey: m.RoutingKey, ContentType: m.ContentType, Headers: m.Headers,
		Body: m.Body, DueAt: time.Unix(1_700_000_000, 0), Attempt: attempt,
	}
	var result halfmsg.PublishResult
	c.publisher.Publish(t.Context(), []halfmsg.Publishing{sent}, func(_ []int, results []halfmsg.PublishResult) {
		for _, result = range results { // none, or one
		}
	})
	trouble := c.trouble.take()
	if result.Outcome != halfmsg.Acked || trouble != "" {
		t.Fatalf("%s exchange %q, routing key %q: %s, %v; the publisher says %q; headers %q", kind, m.Exchange, m.RoutingKey,
			result.Outcome, result.Cause, trouble, m.Headers)
	}
	got, ok, err := c.topology.Get(queue, true)
	if err != nil || !ok {
		t.Fatalf("nothing is in the queue for %q with %q: %v", m.Exchange, m.RoutingKey, err)
	}
	compare(t, &sent, &got)
}

// route routes a message to a queue; remove removes the queue.
func (c *carrier) route(t *testing.T, m *halfmsg.Message, kind string) (queue string, remove func()) {
	t.Helper()
	queue = "of-the-fuzz"
	if m.Exchange == "" {
		queue = m.RoutingKey
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("no way for %q with %q: %v", m.Exchange, m.RoutingKey, err)
		}
	}
	_, err := c.topology.QueueDeclare(queue, false, false, false, false, nil)
	must(err)
	unqueue := func() {
		_, err := c.topology.QueueDelete(queue, false, false, false)
		must(err)
	}
	if m.Exchange == "" {
		return queue, unqueue
	}
	must(c.topology.ExchangeDeclare(m.Exchange, kind, false, false, false, false, nil))
	key := m.RoutingKey
	if kind == amqp.ExchangeTopic {
		key = "#"
	}
	must(c.topology.QueueBind(queue, key, m.Exchange, false, nil))
	return queue, func() {
		must(c.topology.ExchangeDelete(m.Exchange, false, false))
		unqueue()
	}
}

func compare(t *testing.T, sent *halfmsg.Publishing, got *amqp.Delivery) {
	t.Helper()
	headers := map[string]string{}
	for key, value := range got.Headers {
		if text, ok := value.(string); ok {
			headers[key] = text
		}
	}
	switch {
	case got.Exchange != sent.Exchange, got.RoutingKey != sent.RoutingKey, got.ContentType != sent.ContentType,
		got.MessageId != sent.Name.ID, got.AppId != sent.Name.Producer, got.DeliveryMode != amqp.Persistent,
		!got.Timestamp.Equal(sent.DueAt), got.Headers["msghandler-attempt"] != int64(sent.Attempt),
		!maps.Equal(headers, sent.Headers), len(got.Headers) != len(sent.Headers)+1, !bytes.Equal(got.Body, sent.Body):
		t.Fatalf("sent %+v\ngot %+v", sent, got)
	}
}

// bytesOf gives a text of n bytes, the last of which may be the first one's.
func bytesOf(n int, s string) string {
	text := strings.Repeat(s, n/len(s))
	return text + strings.Repeat("x", n-len(text))
}

// nasty are messages at the limits of validation, where AMQP, RabbitMQ or a library could fail.
func nasty() map[string]*msghandlerv1.SendHalfMessageRequest {
	all := map[string]*msghandlerv1.SendHalfMessageRequest{}
	add := func(name string, edit func(r *msghandlerv1.SendHalfMessageRequest, m *msghandlerv1.Message)) {
		r := &msghandlerv1.SendHalfMessageRequest{
			Producer: "orders", CallbackTarget: "orders:9000",
			Message: &msghandlerv1.Message{Id: "1", Exchange: "shop", RoutingKey: "paid", Body: []byte("body")},
		}
		edit(r, r.Message)
		all[name] = r
	}
	type (
		request = msghandlerv1.SendHalfMessageRequest
		message = msghandlerv1.Message
	)
	add("everything at its longest", func(r *request, m *message) {
		r.Producer, m.Id = bytesOf(maxProducer, "._-"), "0"+bytesOf(maxID-1, "._:~-")
		m.Exchange, m.RoutingKey, m.ContentType = bytesOf(maxShort, "e"), bytesOf(maxShort, "r."), bytesOf(maxShort, "c")
		m.Headers = map[string]string{}
		for i := range maxHeaders {
			key := fmt.Sprintf("%02d", i) + bytesOf(maxShort-2, "k")
			m.Headers[key] = bytesOf(maxHeaderBytes/maxHeaders-len(key), "v")
		}
		m.Body = make([]byte, judge.config.Limits.Body)
	})
	add("everything at its longest, not ASCII", func(_ *request, m *message) {
		m.Exchange, m.RoutingKey = bytesOf(maxShort, "é"), bytesOf(maxShort, "\U0001f4e6")
		m.ContentType = bytesOf(maxShort, "\u200d")
		m.Headers = map[string]string{bytesOf(maxShort, "é"): bytesOf(maxHeaderBytes-maxShort, "\U0001f4e6")}
	})
	add("a queue's name at its longest, default exchange", func(_ *request, m *message) {
		m.Exchange, m.RoutingKey = "", bytesOf(maxShort, "é")
	})
	for _, n := range []int{0, 1, 4096 - 8, 4096, 128<<10 - 9, 128<<10 - 8, 128<<10 - 7, 128 << 10, 256<<10 - 16} {
		add(fmt.Sprintf("a body of %d bytes", n), func(_ *request, m *message) { m.Body = bytes.Repeat([]byte{0xCE}, n) })
	}
	for _, text := range []string{
		" ", "  a  ", "/", "%2f", "#", "*", ".", "..", "a..b", "#.#.#.*", ":", "\u200c\u200d", "\u00a0\u3000", "\ufffd",
		"\u0601!",
		"amq", "AMQ.direct", " amq.direct", "(AMQP default)", "<<\"x\">>", "'; --", "${x}", "~p~s~n",
		strings.Repeat(".", maxShort), strings.Repeat("#.", 127), strings.Repeat("a.", 127),
	} {
		add(fmt.Sprintf("all texts are %.20q", text), func(_ *request, m *message) {
			m.Exchange, m.RoutingKey, m.ContentType = text, text, text
			m.Headers = map[string]string{text: text}
		})
		add(fmt.Sprintf("the queue is %.20q", text), func(_ *request, m *message) { m.Exchange, m.RoutingKey = "", text })
	}
	add("headers at their most, all empty", func(_ *request, m *message) {
		m.Headers = map[string]string{}
		for i := range maxHeaders {
			m.Headers[fmt.Sprintf("%02d", i)+bytesOf(maxShort-2, "k")] = ""
		}
	})
	add("headers of letters beyond ASCII, of a trace, and of a number", func(_ *request, m *message) {
		m.Headers = map[string]string{
			"größe": "très grand", "\U0001f4e6": "\U0001f4e6\u202e", "traceparent": "not one", "n": "-9223372036854775808",
			"t": "true",
		}
	})
	add("no body, and everything else at its shortest", func(r *request, m *message) {
		r.Producer, m.Id, m.Exchange, m.RoutingKey, m.Body = "o", "1", "", "q", nil
	})
	add("no routing key", func(_ *request, m *message) { m.RoutingKey = "" })
	add("headers with names of properties and of RabbitMQ", func(_ *request, m *message) {
		m.Headers = map[string]string{
			"user-id": "nobody", "user_id": "nobody", "expiration": "never", "priority": "300", "delivery-mode": "7",
			"type":   "x",
			"deaths": "1", "timestamp": "-1", "timestamp_in_ms": "-1", "headers": "", " CC": "a", "CC ": "a", "BCC\u00a0": "a",
			"x": "y", "X": "Z", "_x-death": "1", "content-length": "-1", "correlation-id": strings.Repeat("x", 300),
		}
	})
	add("a header's value with control characters", func(_ *request, m *message) {
		m.Headers = map[string]string{"a": "\x01\x02\r\n\t\x7f\u0085", "b": "", "c": bytesOf(maxHeaderBytes-64, "\n")}
	})
	return all
}
