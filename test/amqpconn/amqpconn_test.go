// Package amqpconn_test tests connections to a real RabbitMQ.
package amqpconn_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

// patience is far above the time limits of these tests.
const patience = time.Minute

var config = amqpconn.Config{
	Name: "a test", Heartbeat: time.Second, DialTimeout: 5 * time.Second, WriteTimeout: time.Second,
}

// mute connects to a broker that answers with heartbeats only from now on.
func mute(t *testing.T) *amqpconn.Conn {
	t.Helper()
	broker := servers.RabbitMQ(t)
	proxy := wire.RabbitMQ(t, wire.Host(t, broker.URL))
	conn, err := amqpconn.Dial(t.Context(), proxy.URL(broker.URL), config)
	if err != nil {
		t.Fatal(err)
	}
	proxy.On(func(wire.Event) wire.Act { return wire.Drop })
	return conn
}

// ends fails the test unless something comes to its end.
func ends(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal(what + " does not end")
	}
}

func TestCloseEndsDespiteHeartbeats(t *testing.T) {
	t.Parallel()
	conn := mute(t)
	ends(t, "the farewell", func() { conn.CloseWithin(3 * time.Second) }) // three heartbeats
}

func TestGuardedCallEndsDespiteHeartbeats(t *testing.T) {
	t.Parallel()
	conn := mute(t)
	stop := conn.Guard(3 * time.Second)
	ends(t, "opening a channel", func() {
		if _, err := conn.Channel(); err == nil {
			t.Error("a channel was opened without an answer")
		}
	})
	if stop() {
		t.Error("the dial ended before the guard hung up")
	}
}

func TestStoppedGuardKeepsTheConnection(t *testing.T) {
	t.Parallel()
	conn, err := amqpconn.Dial(t.Context(), servers.RabbitMQ(t).URL, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseWithin(patience)
	if stop := conn.Guard(time.Hour); !stop() {
		t.Error("the guard has hung up")
	}
	if _, err := conn.Channel(); err != nil {
		t.Error(err)
	}
}

func TestDiallingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	broker := servers.RabbitMQ(t)
	proxy := wire.TCP(t, wire.Host(t, broker.URL))
	proxy.Silence() // accepts connections, and sends nothing
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	config := config
	config.DialTimeout = time.Hour
	ends(t, "dialling", func() {
		if _, err := amqpconn.Dial(ctx, proxy.URL(broker.URL), config); err == nil {
			t.Error("connected without a handshake")
		}
	})
}

func TestArrivedAnswerIsReturned(t *testing.T) {
	t.Parallel()
	conn, err := amqpconn.Dial(t.Context(), servers.RabbitMQ(t).URL, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseWithin(patience)
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	answered, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", "missing", false, false, amqp.Publishing{})
	if err != nil {
		t.Fatal(err)
	}
	if acknowledged, err := amqpconn.Answer(t.Context(), answered); err != nil || !acknowledged {
		t.Fatal(acknowledged, err)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if acknowledged, err := amqpconn.Answer(late, answered); err != nil || !acknowledged {
			t.Fatalf("the message acknowledged before the end is %v, %v", acknowledged, err)
		}
	}
	if acknowledged, err := amqpconn.Answer(late, &amqp.DeferredConfirmation{}); err == nil || acknowledged {
		t.Errorf("the message without an answer is %v, %v", acknowledged, err)
	}
}
