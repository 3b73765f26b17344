package dev_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

// A message whose broker is nats goes to a stream of the embedded server.
func TestNATSIsServed(t *testing.T) {
	t.Parallel()
	port := freePorts(t, 1)[0]
	d := startDev(t, "--nats-port="+port)
	js := natsserver.Stream(t, "nats://127.0.0.1:"+port, "ORDERS", "orders.>")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	message := producer.Message{ID: "1", Broker: "nats", Exchange: "ORDERS", RoutingKey: "orders.paid", Body: []byte("42")}
	if err := d.send(t, "127.0.0.1", message); err != nil {
		t.Fatal(err)
	}
	reader, err := js.OrderedConsumer(ctx, "ORDERS", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := reader.Next(jetstream.FetchMaxWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Data()) != "42" || got.Subject() != "orders.paid" || got.Headers().Get("msghandler-id") != "1" {
		t.Errorf("got %q at %s with %v", got.Data(), got.Subject(), got.Headers())
	}
}
