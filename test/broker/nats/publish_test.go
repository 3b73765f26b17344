package nats_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMessageCarriesWhatPropertiesDo(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	a := connect(t, server.URL)
	a.stream("ORDERS", "orders.>")
	p := publisher(t, nats.Config{URL: server.URL})
	m := message(7, "ORDERS", "orders.paid")
	m.ContentType, m.Trace, m.Attempt = "application/json", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", 3
	m.Headers = map[string]string{"tenant": "eu", "Grüße": "x"}
	if r := outcome(t, p, m); r.Outcome != publish.Refused {
		t.Errorf("a header name unknown to NATS: %v", r)
	}
	m.Headers = map[string]string{"tenant": "eu, Zürich"}
	expect(t, publishAll(t.Context(), p, []publish.Message{m}), publish.Acked)
	got := a.read("ORDERS", 1)
	if len(got) != 1 || got[0].Subject != "orders.paid" || string(got[0].Data) != "body of 7" {
		t.Fatalf("the stream has %+v", got)
	}
	for name, want := range map[string]string{
		"Nats-Msg-Id": "orders/7", "Nats-Expected-Stream": "ORDERS", "msghandler-id": "7", "msghandler-producer": "orders",
		"msghandler-attempt": "3", "msghandler-timestamp": "2023-11-14T22:13:20Z", "content-type": "application/json",
		"traceparent": m.Trace, "tenant": "eu, Zürich",
	} {
		if is := got[0].Header.Get(name); is != want {
			t.Errorf("the header %s is %q, want %q", name, is, want)
		}
	}
}

func TestDuplicateIsDoneAndCounted(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	a := connect(t, server.URL)
	a.stream("ORDERS", "orders.>")
	p := publisher(t, nats.Config{URL: server.URL})
	batch := messages(10, "ORDERS", "orders.paid")
	expect(t, publishAll(t.Context(), p, batch), publish.Acked)
	for i := range batch {
		batch[i].Attempt++
	}
	expect(t, publishAll(t.Context(), p, batch), publish.Acked)
	if n := p.Duplicates(); n != 10 {
		t.Errorf("%d duplicates are counted, want 10", n)
	}
	if n := len(a.read("ORDERS", 1)); n != 10 {
		t.Errorf("the stream has %d messages, want 10", n)
	}
}

// Each message is refused alone in a batch of good ones, with a reason that names the cause.
func TestRefusedMessageFailsAlone(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t, "max_payload: 4KB")
	a := connect(t, server.URL)
	a.make(jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*.>"}, MaxMsgSize: 2000})
	a.stream("OTHER", "other.>")
	a.make(jetstream.StreamConfig{Name: "FULL", Subjects: []string{"full"}, MaxMsgs: 1, Discard: jetstream.DiscardNew})
	p := publisher(t, nats.Config{URL: server.URL})
	expect(t, []publish.Result{outcome(t, p, message(1, "FULL", "full"))}, publish.Acked)
	type msg = *publish.Message
	for name, test := range map[string]struct {
		spoil func(m msg)
		want  string
	}{
		"unknown stream":         {func(m msg) { m.Exchange, m.RoutingKey = "NONE", "none.x" }, `no stream "NONE"`},
		"subject of no stream":   {func(m msg) { m.RoutingKey = "orders.x" }, "does not take the subject"},
		"another's subject":      {func(m msg) { m.RoutingKey = "other.x" }, "expected stream does not match"},
		"too large, the stream":  {func(m msg) { m.Body = make([]byte, 3000) }, "message size exceeds maximum"},
		"too large, the server":  {func(m msg) { m.Body = make([]byte, 5000) }, "maximum payload exceeded"},
		"the stream is full":     {func(m msg) { m.Exchange, m.RoutingKey = "FULL", "full" }, "maximum messages"},
		"no stream":              {func(m msg) { m.Exchange = "" }, "names the stream"},
		"no subject":             {func(m msg) { m.RoutingKey = "" }, "is the subject"},
		"a wildcard":             {func(m msg) { m.RoutingKey = "orders.*.x" }, "wildcard"},
		"a command to JetStream": {func(m msg) { m.RoutingKey = "$JS.API.STREAM.DELETE.ORDERS" }, "the server's own"},
		"an order to JetStream": {
			func(m msg) { m.Headers = map[string]string{"nats-rollup": "all"} }, "JetStream obeys",
		},
		"a broken line": {
			func(m msg) { m.Headers = map[string]string{"a": "b\r\nNats-Rollup: all"} }, "would change",
		},
	} {
		t.Run(name, func(t *testing.T) {
			batch := messages(20, "ORDERS", "orders.eu.paid")
			for i := range batch {
				batch[i].Name.ID = name + " " + batch[i].Name.ID
			}
			test.spoil(&batch[10])
			results := publishAll(t.Context(), p, batch)
			expect(t, results[10:11], publish.Refused)
			if cause := results[10].Cause.Error(); !strings.Contains(cause, test.want) {
				t.Errorf("the cause is %q, and lacks %q", cause, test.want)
			}
			expect(t, append(results[:10:10], results[11:]...), publish.Acked)
		})
	}
	if p.Ready() != nil {
		t.Errorf("after all: %v", p.Ready())
	}
	if n := len(a.read("ORDERS", 1)); n != 12*19 {
		t.Errorf("the stream has %d messages, want the good ones: %d", n, 12*19)
	}
}

const users = `authorization { users: [
  { user: all, password: its-secret }
  { user: some, password: its-secret, permissions: {
      publish: ["orders.open.>", "$JS.API.STREAM.INFO.>"], subscribe: ["_INBOX.>"] } }
  { user: deaf, password: its-secret, permissions: { publish: [">"], subscribe: ["orders.>"] } }
  { user: own, password: its-secret, permissions: { publish: [">"], subscribe: ["_MY.>"] } }
] }`

func as(user string, server *servers.NATSServer) string {
	return strings.Replace(server.URL, "nats://", "nats://"+user+":its-secret@", 1)
}

// A user who may not ask for the account publishes where the user may. What the user may not publish is refused.
func TestForbiddenSubjectIsRefused(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t, users)
	a := connect(t, as("all", server))
	a.stream("ORDERS", "orders.>")
	p := publisher(t, nats.Config{URL: as("some", server)})
	batch := messages(20, "ORDERS", "orders.open.x")
	batch[10].RoutingKey = "orders.closed.x"
	began := time.Now()
	results := publishAll(t.Context(), p, batch)
	expect(t, results[10:11], publish.Refused)
	expect(t, append(results[:10:10], results[11:]...), publish.Acked)
	if took := time.Since(began); took > 3*time.Second || !strings.Contains(results[10].Cause.Error(), "orders.closed.x") {
		t.Errorf("after %v: %v", took, results[10].Cause)
	}
}

func TestUserWithoutAnswersIsNotReady(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t, users)
	connect(t, as("all", server)).stream("ORDERS", "orders.>")
	p := open(t, nats.Config{URL: as("deaf", server)})
	servers.Eventually(t, 20*time.Second, "Ready names the permission", func() bool {
		err := p.Ready()
		return errors.Is(err, publish.ErrBlocked) && strings.Contains(err.Error(), `Subscription to "_INBOX`)
	})
	expect(t, publishAll(t.Context(), p, messages(10, "ORDERS", "orders.x")), publish.Unsent)

	other := publisher(t, nats.Config{URL: as("own", server) + "?inbox_prefix=_MY"})
	expect(t, publishAll(t.Context(), other, messages(10, "ORDERS", "orders.x")), publish.Acked)
}

// A stream that acknowledges nothing would keep each message for ever.
func TestStreamWithoutAcksIsRefused(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	a := connect(t, server.URL)
	a.make(jetstream.StreamConfig{Name: "MUTE", Subjects: []string{"mute"}, NoAck: true})
	a.stream("ORDERS", "orders.>")
	p := publisher(t, nats.Config{URL: server.URL, ConfirmTimeout: 3 * time.Second})
	batch := append(messages(10, "ORDERS", "orders.x"), message(1, "MUTE", "mute"))
	began := time.Now()
	results := publishAll(t.Context(), p, batch)
	expect(t, results[:10], publish.Acked)
	expect(t, results[10:], publish.Unsure)
	if took := time.Since(began); took > 5*time.Second { // the library's own timeout is 6 s
		t.Errorf("the publish took %v", took)
	}
	servers.Eventually(t, 10*time.Second, "the next message is refused", func() bool {
		r := outcome(t, p, message(2, "MUTE", "mute"))
		return r.Outcome == publish.Refused && strings.Contains(r.Cause.Error(), "no_ack")
	})
	health, err := nats.Examine(t.Context(), nats.Config{URL: server.URL}, "ORDERS", "MUTE", "NONE")
	if err != nil || health.Trouble != nil || health.Streams["ORDERS"] != nil || health.Streams["MUTE"] == nil ||
		!errors.Is(health.Streams["NONE"], jetstream.ErrStreamNotFound) {
		t.Errorf("health is %+v, %v", health, err)
	}
}

// With a window of 5 no more than 5 messages are in flight, and all arrive.
func TestWindowBoundsMessagesInFlight(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	a := connect(t, server.URL)
	a.stream("ORDERS", "orders.>")
	p := publisher(t, nats.Config{URL: server.URL, Window: 5})
	ctx, cancel := context.WithCancel(t.Context())
	most := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			n = max(n, p.InFlight())
		}
		most <- n
	}()
	expect(t, publishAll(t.Context(), p, messages(500, "ORDERS", "orders.x")), publish.Acked)
	cancel()
	if n := <-most; n > 5 {
		t.Errorf("%d messages were in flight", n)
	}
	if n := p.InFlight(); n != 0 {
		t.Errorf("%d messages are in flight at the end", n)
	}
}

func TestDeadMessagesCopyHasOwnSubject(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	a := connect(t, server.URL)
	a.stream("ORDERS", "orders.>")
	a.stream("DEAD", "DEAD.>")
	p := publisher(t, nats.Config{URL: server.URL})
	m := message(1, "DEAD", "orders.paid")
	expect(t, []publish.Result{outcome(t, p, m)}, publish.Refused)
	m.Publication, m.Dead = "dead", true
	expect(t, []publish.Result{outcome(t, p, m)}, publish.Acked)
	if got := a.read("DEAD", 1); len(got) != 1 || got[0].Subject != "DEAD.orders.paid" {
		t.Errorf("the stream has %+v", got)
	}
}
