package amqpbroker_test

import (
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
)

// A client that reads nothing gets only so much; the queue keeps the rest, and others are served.
func TestSlowReaderDoesNotEmptyQueue(t *testing.T) {
	t.Parallel()
	b := start(t, amqpbroker.Config{})
	gate := newGate()
	slow, err := amqp.DialConfig("amqp://guest:guest@memory/", amqp.Config{Dial: gate.dial(b)})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	ch := confirming(t, slow)
	deliveries, err := ch.Consume("q", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	gate.close()
	const n, size = 200, 100_000
	publisher := confirming(t, dial(t, b))
	for range n {
		if !acked(t, publish(t, publisher, amqp.Publishing{Body: make([]byte, size)})) {
			t.Fatal("not acknowledged")
		}
	}
	if left := b.Depth("q"); left < n-50 {
		t.Errorf("%d of %d messages wait in the queue; the others are held for a client that does not read", left, n)
	}
	gate.open()
	for range n {
		select {
		case <-deliveries:
		case <-time.After(patience):
			t.Fatal("a delivery is missing")
		}
	}
}

// gate holds up a client's reading.
type gate struct{ free chan struct{} }

func newGate() *gate {
	g := &gate{free: make(chan struct{}, 1)}
	g.open()
	return g
}

func (g *gate) open()  { g.free <- struct{}{} }
func (g *gate) close() { <-g.free }

func (g *gate) dial(b *amqpbroker.Broker) func(string, string) (net.Conn, error) {
	return func(network, address string) (net.Conn, error) {
		conn, err := b.Dial(network, address)
		return gatedConn{conn, g}, err
	}
}

type gatedConn struct {
	net.Conn
	gate *gate
}

func (c gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	<-c.gate.free
	c.gate.free <- struct{}{}
	return n, err
}
