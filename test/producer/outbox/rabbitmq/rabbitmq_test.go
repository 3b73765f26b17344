// Package rabbitmq_test tests broker/rabbitmq/rabbitmqoutbox on a real RabbitMQ.
package rabbitmq_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqoutbox"
	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

func sender(t *testing.T, url string) *rabbitmqoutbox.Sender {
	t.Helper()
	s, err := rabbitmqoutbox.New(rabbitmqoutbox.Config{URL: url, Producer: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// channel opens a channel of the test's own.
func channel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func declare(t *testing.T, ch *amqp.Channel, queue string) {
	t.Helper()
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, ch *amqp.Channel, queue string) amqp.Delivery {
	t.Helper()
	var d amqp.Delivery
	servers.Eventually(t, 10*time.Second, "a message in "+queue, func() (found bool) {
		var err error
		if d, found, err = ch.Get(queue, true); err != nil {
			t.Fatal(err)
		}
		return found
	})
	return d
}

// queued is a message to the queue of that name, by the default exchange.
func queued(id, queue string) sqlmarker.Queued {
	return sqlmarker.Queued{Claims: 1, Message: producer.Message{
		ID: id, RoutingKey: queue, Body: []byte("paid " + id), ContentType: "text/plain",
		Headers: map[string]string{"trace": "t1"},
	}}
}

func fates(results []outbox.Result) []outbox.Fate {
	all := make([]outbox.Fate, len(results))
	for i, r := range results {
		all[i] = r.Fate
	}
	return all
}

func TestMessageArrivesAsEnqueued(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	ch, s := channel(t, url), sender(t, url)
	declare(t, ch, "paid")
	again := queued("1001", "paid")
	again.Claims = 3
	again.Message.Headers["msghandler-attempt"] = "1" // the count of copies is not the caller's
	if got := s.Send(t.Context(), []sqlmarker.Queued{again}); got[0].Fate != outbox.Sent {
		t.Fatalf("%+v", got)
	}
	d := take(t, ch, "paid")
	if d.MessageId != "1001" || d.AppId != "orders" || string(d.Body) != "paid 1001" || d.ContentType != "text/plain" ||
		d.DeliveryMode != amqp.Persistent || d.Headers["trace"] != "t1" || d.Headers["msghandler-attempt"] != int64(3) ||
		d.Timestamp.IsZero() {
		t.Errorf("%+v", d)
	}
}

func TestOnlyReturnedMessagesAreRefused(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	ch, s := channel(t, url), sender(t, url)
	declare(t, ch, "paid")
	batch := []sqlmarker.Queued{}
	for i := range 200 {
		queue := "paid"
		if i%2 == 1 {
			queue = "nobody's"
		}
		batch = append(batch, queued(string(rune('a'+i%26))+time.Duration(i).String(), queue))
	}
	for i, fate := range fates(s.Send(t.Context(), batch)) {
		if want := []outbox.Fate{outbox.Sent, outbox.Refused}[i%2]; fate != want {
			t.Errorf("message %d is %v, want %v", i, fate, want)
		}
	}
}

func TestRejectedMessageHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	ch, s := channel(t, url), sender(t, url)
	declare(t, ch, "paid")
	bad := queued("bad", "x")
	bad.Message.Exchange = "no such exchange"
	results := s.Send(t.Context(), []sqlmarker.Queued{queued("1", "paid"), bad, queued("2", "paid")})
	if results[0].Fate != outbox.Sent || results[1].Fate != outbox.Refused || results[2].Fate != outbox.Sent {
		t.Fatalf("%+v", results)
	}
	first := map[string]bool{}
	for len(first) < 2 {
		d := take(t, ch, "paid")
		if attempt := d.Headers["msghandler-attempt"].(int64); first[d.MessageId] && attempt < 2 {
			t.Errorf("another copy of %s is not flagged", d.MessageId)
		}
		first[d.MessageId] = true
	}
}

// An exchange and a queue that are deleted and made again, of another type, take messages.
func TestExchangeMadeAgainTakesMessages(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	ch, s := channel(t, url), sender(t, url)
	message := queued("1", "paid")
	message.Message.Exchange = "events"
	for _, kind := range []string{amqp.ExchangeTopic, amqp.ExchangeFanout, amqp.ExchangeDirect} {
		if kind != amqp.ExchangeTopic {
			if got := s.Send(t.Context(), []sqlmarker.Queued{message}); got[0].Fate != outbox.Refused {
				t.Errorf("without the exchange: %+v", got)
			}
		}
		declare(t, ch, "paid")
		if err := ch.ExchangeDeclare("events", kind, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := ch.QueueBind("paid", "paid", "events", false, nil); err != nil {
			t.Fatal(err)
		}
		if got := s.Send(t.Context(), []sqlmarker.Queued{message, message}); got[0].Fate != outbox.Sent ||
			got[1].Fate != outbox.Sent {
			t.Fatalf("%s: %+v", kind, got)
		}
		take(t, ch, "paid")
		if err := ch.ExchangeDelete("events", false, false); err != nil {
			t.Fatal(err)
		}
		if _, err := ch.QueueDelete("paid", false, false, false); err != nil {
			t.Fatal(err)
		}
	}
}

// The broker closes a channel for each message to a missing exchange, and each channel costs a connection.
func TestRejectedExchangeCostsFewConnections(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	ch := channel(t, url)
	declare(t, ch, "paid")
	proxy := wire.RabbitMQ(t, wire.Host(t, url))
	var connections atomic.Int64
	proxy.On(func(e wire.Event) wire.Act {
		if e.Name == "connection.open" {
			connections.Add(1)
		}
		return wire.Pass
	})
	batch := []sqlmarker.Queued{queued("good", "paid")}
	for i := range 20 {
		bad := queued(fmt.Sprint(i), "x")
		bad.Message.Exchange = "no such exchange"
		batch = append(batch, bad)
	}
	results := sender(t, proxy.URL(url)).Send(t.Context(), batch)
	for i, r := range results {
		want := outbox.Refused
		if i == 0 {
			want = outbox.Sent
		}
		if r.Fate != want {
			t.Errorf("message %d: %+v", i, r)
		}
		if i > 0 && !strings.Contains(r.Err.Error(), "NOT_FOUND") {
			t.Errorf("message %d was refused because of %v", i, r.Err)
		}
	}
	if n := connections.Load(); n == 0 || n > 10 {
		t.Errorf("%d connections for 20 messages to one missing exchange", n)
	}
}

func TestUnfitMessageHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	ch, s := channel(t, url), sender(t, url)
	declare(t, ch, "paid")
	for _, spoil := range []func(*producer.Message){
		func(m *producer.Message) { m.Exchange = strings.Repeat("x", 256) },
		func(m *producer.Message) { m.RoutingKey = strings.Repeat("x", 256) },
		func(m *producer.Message) { m.Headers = map[string]string{strings.Repeat("x", 256): "y"} },
	} {
		bad := queued("bad", "paid")
		spoil(&bad.Message)
		got := fates(s.Send(t.Context(), []sqlmarker.Queued{queued("1", "paid"), bad, queued("2", "paid")}))
		if want := []outbox.Fate{outbox.Sent, outbox.Refused, outbox.Sent}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func TestNackedMessageIsRefused(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	ch, s := channel(t, url), sender(t, url)
	full := amqp.Table{"x-max-length": int64(1), "x-overflow": "reject-publish"}
	if _, err := ch.QueueDeclare("full", true, false, false, false, full); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, 10*time.Second, "a refusal of the full queue", func() bool {
		return s.Send(t.Context(), []sqlmarker.Queued{queued("1", "full")})[0].Fate == outbox.Refused
	})
}

func TestBrokenConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	vhost := servers.RabbitMQ(t)
	ch, s := channel(t, vhost.URL), sender(t, vhost.URL)
	declare(t, ch, "paid")
	if got := s.Send(t.Context(), []sqlmarker.Queued{queued("1", "paid")}); got[0].Fate != outbox.Sent {
		t.Fatalf("%+v", got)
	}
	vhost.CloseConnections(2)
	servers.Eventually(t, 30*time.Second, "a new connection", func() bool {
		got := s.Send(t.Context(), []sqlmarker.Queued{queued("2", "paid")})
		if got[0].Fate == outbox.Refused {
			t.Fatalf("a broken connection counts as a refusal: %v", got[0].Err)
		}
		return got[0].Fate == outbox.Sent
	})
}

func TestUnreachableBrokerLeavesMessagesUnsent(t *testing.T) {
	t.Parallel()
	s := sender(t, "amqp://guest:guest@"+servers.Addresses(t, 1)[0]+"/")
	got := s.Send(t.Context(), []sqlmarker.Queued{queued("1", "paid"), queued("2", "paid")})
	for _, r := range got {
		if r.Fate != outbox.Unreached || r.Err == nil || !r.Unsent {
			t.Errorf("%+v", r)
		}
	}
}

func TestTableKeepsTheDelay(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	ch, s := channel(t, url), sender(t, url)
	declare(t, ch, "paid")
	q := queued("1", "paid")
	q.Message.Delay, q.Age = time.Hour, time.Minute
	if got := s.Send(t.Context(), []sqlmarker.Queued{q}); got[0].Fate != outbox.Early || got[0].In != 59*time.Minute {
		t.Errorf("%+v", got)
	}
	q.Age = 3 * time.Hour
	begun := time.Now()
	if got := s.Send(t.Context(), []sqlmarker.Queued{q}); got[0].Fate != outbox.Sent {
		t.Errorf("%+v", got)
	}
	due := take(t, ch, "paid").Timestamp // in whole seconds
	if off := due.Sub(begun.Add(-2 * time.Hour)); off < -time.Second || off > time.Minute {
		t.Errorf("the message was due at %v", due)
	}
}
