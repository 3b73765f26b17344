package rabbitmq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	rabbit "github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

func (b *bench) deadLetters() *consumer.DeadLetters {
	b.Helper()
	d, err := rabbit.NewDeadLetters(b.vhost.URL, nil, "payments.dead")
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// A letter of the broker has its origin in the broker's own headers; an unroutable letter stays.
func TestBrokersDeadLettersAreReplayed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.config()
	config.Declare.DeliveryLimit = 2
	config.Retry = []time.Duration{time.Millisecond}
	stop := b.start(config, func(context.Context, *consumer.Message) error { return errors.New("no") })
	b.publish(1, 1)
	servers.Eventually(t, patience, "a dead letter", func() bool { return b.depth("payments.dead") == 1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	dead := b.deadLetters()
	l, err := dead.Show(t.Context(), "orders/1")
	if err != nil || l.Reason != "delivery_limit" || l.Queue != "payments" || l.Exchange != "orders" ||
		l.RoutingKey != "order.paid" {
		t.Errorf("%+v, %v", l, err)
	}
	servers.Eventually(t, patience, "given back", func() bool { return b.depth("payments.dead") == 1 })
	if err := b.ch.QueueUnbind("payments", "#", "orders", nil); err != nil {
		t.Fatal(err)
	}
	if n, err := dead.Replay(t.Context(), consumer.Anywhere); n != 0 || err == nil {
		t.Errorf("replayed %d to nowhere, %v", n, err)
	}
	servers.Eventually(t, patience, "it stays", func() bool { return b.depth("payments.dead") == 1 })
	if err := b.ch.QueueBind("payments", "#", "orders", false, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := dead.Replay(t.Context(), consumer.Anywhere); n != 1 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	servers.Eventually(t, patience, "it is back", func() bool { return b.depth("payments") == 1 })
}
