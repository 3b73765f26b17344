package rabbitmqconsumer

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
)

// A broken connection returns its messages. A copy of a message that was kept would be a second message.
func TestLostConnectionCopiesNoKeptMessage(t *testing.T) {
	t.Parallel()
	r := &run{stopping: t.Context(), work: t.Context(), Config: Config{
		Queue: "payments", Declare: &Declare{Delays: []time.Duration{time.Second}}, Logger: slog.New(slog.DiscardHandler),
	}}
	copies := 0
	r.poster.connect = func(context.Context) (*amqpconn.Conn, error) {
		copies++
		return nil, errors.New("no broker")
	}
	in := newIntake(nil)
	close(in.over)
	r.wait(in, &task{since: time.Now()})
	if copies > 0 {
		t.Error("the message was copied")
	}
	r.wait(in, &task{since: time.Now().Add(-maxKept)})
	if copies == 0 {
		t.Error("a message that was kept for too long was not copied")
	}
}

// A message that was kept for too long goes back to its queue by the default exchange.
func TestKeptMessageKeepsItsExchange(t *testing.T) {
	t.Parallel()
	first := &amqp.Delivery{Exchange: "orders", RoutingKey: "order.paid"}
	m, _ := newMessage(first)
	p := kept(first, m)
	m, _ = newMessage(&amqp.Delivery{Exchange: "", RoutingKey: "payments", Headers: p.Headers})
	if m.Exchange != "orders" || m.RoutingKey != "order.paid" || m.Retries != 0 {
		t.Errorf("the copy is %+v", m)
	}
}
