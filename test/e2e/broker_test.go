package e2e

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

func TestUnroutableMessageIsDeadUntilRetried(t *testing.T) {
	w := newWorld(t)
	w.startCoordinators(1, "MSGHANDLER_SEND_BACKOFF=100ms,200ms", "MSGHANDLER_SEND_DEAD_LETTER_EXCHANGE=graveyard",
		"MSGHANDLER_SEND_LEASE=12s")
	env := []string{"MSGHANDLER_SERVER=" + w.coordinators[0].grpc}
	channel := w.channel()
	if err := channel.ExchangeDeclare("lonely", "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := channel.ExchangeDeclare("graveyard", "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	w.bind(channel, "graves", "", "graveyard")
	p := newPlainProducer(t, "billing", w.coordinators[0].grpc)
	p.sendHalves(time.Minute, &pb.Message{Id: "7", Exchange: "lonely", RoutingKey: "bill.sent", Body: []byte("seven")})
	if state := p.submit("7", pb.Wait_WAIT_DONE); state != pb.State_STATE_DEAD {
		t.Fatalf("an unroutable message is %v", state)
	}
	shown, status := programs.Run(t, "msghandler", env, "show", "billing/7")
	if status != 0 || !strings.Contains(shown, "dead") || !strings.Contains(shown, "NO_ROUTE") {
		t.Fatalf("show says (%d):\n%s", status, shown)
	}
	grave := w.get(channel, "graves")
	if grave.MessageId != "7" || grave.Headers["msghandler-origin-exchange"] != "lonely" ||
		grave.Headers["msghandler-dead-attempts"] != "3" {
		t.Errorf("the copy for the dead letters is %+v", grave)
	}

	w.bind(channel, "bills", "bill.*", "lonely")
	if said, status := programs.Run(t, "msghandler", env, "retry", "billing/7"); status != 0 {
		t.Fatalf("retry says (%d): %s", status, said)
	}
	got := w.get(channel, "bills")
	if got.MessageId != "7" || got.AppId != "billing" || string(got.Body) != "seven" ||
		got.DeliveryMode != amqp.Persistent {
		t.Errorf("delivered %+v", got)
	}
	if attempt, _ := got.Headers["msghandler-attempt"].(int64); attempt <= 1 {
		t.Errorf("after three refusals the attempt is %d", attempt)
	}
	w.drained(20 * time.Second)
	if said, status := programs.Run(t, "msghandler", env, "show", "billing/8"); status != 3 {
		t.Errorf("a missing message: exit status %d, %s", status, said)
	}
}

func TestDelayedMessageWaits(t *testing.T) {
	server, cluster := servers.NATS(t), fakekafka.Start(t, nil)
	js := natsserver.Stream(t, server.URL, "ORDERS", "orders.>")
	cluster.Topic("orders", nil)
	w := newWorld(t)
	w.startCoordinators(1, "MSGHANDLER_BROKERS_STREAM_URL="+server.URL, "MSGHANDLER_BROKERS_LOG_URL="+cluster.URL("", ""))
	channel := w.channel()
	if _, err := channel.QueueDeclare("reminders", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	header := func(t *testing.T, text string) time.Time {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Error(err)
		}
		return at
	}
	dueTimes := map[string]func(t *testing.T) time.Time{
		"rabbitmq": func(*testing.T) time.Time { return w.get(channel, "reminders").Timestamp },
		"nats": func(t *testing.T) time.Time {
			stream, err := js.Stream(t.Context(), "ORDERS")
			if err != nil {
				t.Fatal(err)
			}
			m, err := stream.GetMsg(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			return header(t, m.Header.Get("msghandler-timestamp"))
		},
		"kafka": func(t *testing.T) time.Time {
			said := cluster.Kcat("", "-C", "-t", "orders", "-e", "-q", "-f", "%h")
			_, text, _ := strings.Cut(said, "msghandler-timestamp=")
			text, _, _ = strings.Cut(text, ",")
			return header(t, text)
		},
	}
	const delay = 3 * time.Second
	for kind, m := range map[string]*pb.Message{
		"rabbitmq": {RoutingKey: "reminders"},
		"nats":     {Broker: "stream", Exchange: "ORDERS", RoutingKey: "orders.late"},
		"kafka":    {Broker: "log", Exchange: "orders"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := newPlainProducer(t, kind, w.coordinators[0].grpc)
			begun := time.Now()
			m.Id, m.Body, m.Delay = "1", []byte("{}"), durationpb.New(delay)
			p.sendHalves(time.Minute, m)
			if state := p.submit("1", pb.Wait_WAIT_SENDABLE); state != pb.State_STATE_SENDABLE {
				t.Fatalf("the confirmed message is %v", state)
			}
			if state := p.submit("1", pb.Wait_WAIT_DONE); state != pb.State_STATE_DONE {
				t.Fatalf("in the end the message is %v", state)
			}
			if took := time.Since(begun); took < delay {
				t.Errorf("delivered after %v, too early", took)
			}
			// RabbitMQ keeps whole seconds.
			if due := dueTimes[kind](t); due.Before(begun.Add(delay-time.Second)) || due.After(time.Now()) {
				t.Errorf("sent at %v with a delay of %v, the message was due at %v", begun, delay, due)
			}
		})
	}
}

// bind makes a queue and binds it.
func (w *world) bind(channel *amqp.Channel, queue, key, exchange string) {
	w.t.Helper()
	if _, err := channel.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		w.t.Fatal(err)
	}
	if err := channel.QueueBind(queue, key, exchange, false, nil); err != nil {
		w.t.Fatal(err)
	}
}

// get waits for a message in a queue and takes it.
func (w *world) get(channel *amqp.Channel, queue string) (got amqp.Delivery) {
	w.t.Helper()
	servers.Eventually(w.t, 20*time.Second, "a message is in "+queue, func() (ok bool) {
		var err error
		if got, ok, err = channel.Get(queue, true); err != nil {
			w.t.Fatal(err)
		}
		return ok
	})
	return got
}

// channel is a connection to the broker that ends with the test.
func (w *world) channel() *amqp.Channel {
	w.t.Helper()
	conn, err := amqp.Dial(w.amqp)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	channel, err := conn.Channel()
	if err != nil {
		w.t.Fatal(err)
	}
	return channel
}
