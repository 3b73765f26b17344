package faults

import (
	"context"
	"math/rand/v2"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// What happens to RabbitMQ.
var brokerRows = []row{
	{name: "F21", copies: true, fault: cutBroker},
	{name: "F22", copies: true, fault: unbind},
}

func cutBroker(ctx context.Context, w *world, _ *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Second)
		w.ledger.Fault("all connections to RabbitMQ are closed")
		w.broker.CloseConnections()
	}
	for _, c := range w.coordinators {
		w.ready(c)
	}
}

// unbind takes the queue's binding away and gives it back.
func unbind(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	conn, err := amqp.Dial(w.broker.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		w.t.Fatal(err)
	}
	w.ledger.Fault("the queue is unbound")
	if err := channel.QueueUnbind(queue, "#", exchange, nil); err != nil {
		w.t.Fatal(err)
	}
	wait(3 * time.Second)
	if err := channel.QueueBind(queue, "#", exchange, false, nil); err != nil {
		w.t.Fatal(err)
	}
	w.ledger.Fault("the queue is bound again")
}
