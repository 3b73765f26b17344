package rabbitmq_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	rabbit "github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/dedup/memory"
	"github.com/msghandler/msghandler/test/servers"
)

func (b *bench) deadLetters() *rabbit.DeadLetters {
	b.Helper()
	d, err := rabbit.NewDeadLetters(b.vhost.URL, nil, "payments.dead")
	if err != nil {
		b.Fatal(err)
	}
	return d
}

func TestDeadLettersAreReplayedAfterFix(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.delayed(20 * time.Millisecond)
	config.Dedup = memory.New(100)
	var fixed atomic.Bool
	handled := make(chan *consumer.Message, 100)
	b.start(config, func(_ context.Context, m *consumer.Message) error {
		if !fixed.Load() {
			return errors.New("a fault in the handler")
		}
		handled <- m
		return nil
	})
	b.publish(1, 4)
	servers.Eventually(t, patience, "four dead letters", func() bool { return b.depth("payments.dead") == 4 })
	dead := b.deadLetters()
	for range 2 { // looking changes nothing
		letters, err := dead.List(t.Context(), 10)
		if err != nil || len(letters) != 4 {
			t.Fatalf("%d letters, %v", len(letters), err)
		}
		servers.Eventually(t, patience, "all given back", func() bool { return b.depth("payments.dead") == 4 })
	}
	l, err := dead.Show(t.Context(), "orders/3")
	if err != nil || l.Queue != "payments" || l.Exchange != "orders" || l.RoutingKey != "order.paid" || l.Retries != 1 ||
		l.FirstCause != "a fault in the handler" || l.Reason != l.FirstCause || string(l.Body) != "pay" ||
		l.FirstFailedAt == "" {
		t.Errorf("%+v of %+v, %v", l, l.Message, err)
	}
	if _, err := dead.Show(t.Context(), "orders/7"); !errors.Is(err, consumer.ErrNoLetter) {
		t.Errorf("a letter that is not there: %v", err)
	}
	servers.Eventually(t, patience, "all given back", func() bool { return b.depth("payments.dead") == 4 })
	if n, err := dead.Discard(t.Context(), "orders/4"); n != 1 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	servers.Eventually(t, patience, "three are left", func() bool { return b.depth("payments.dead") == 3 })

	fixed.Store(true)
	if n, err := dead.Replay(t.Context(), consumer.Anywhere, "orders/2", "orders/9"); n != 1 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	m := take(t, handled, "the one that was replayed")
	if m.ID != "2" || m.Attempt != 2 || m.Retries != 0 || m.FirstCause != "" || m.Exchange != "orders" {
		t.Errorf("replayed %+v", m)
	}
	servers.Eventually(t, patience, "two are left", func() bool { return b.depth("payments.dead") == 2 })
	if n, err := dead.Replay(t.Context(), consumer.Anywhere); n != 2 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	if n, err := dead.Replay(t.Context(), consumer.Anywhere); n != 0 || err != nil {
		t.Errorf("replayed again %d, %v", n, err)
	}
	take(t, handled, "another")
	take(t, handled, "the last")
	if n := b.depth("payments.dead"); n != 0 || len(handled) != 0 {
		t.Errorf("%d letters left, %d handled too many", n, len(handled))
	}
}

// An inbox rejects a message without an id, so an operator must be able to see and discard the message.
func TestLetterWithoutIDHasItsProducer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start(b.config(), func(context.Context, *consumer.Message) error { return consumer.Reject(errors.New("no id")) })
	b.publish(1, 1)
	err := b.ch.PublishWithContext(t.Context(), "orders", "order.paid", true, false, amqp.Publishing{
		AppId: "orders", Body: []byte("who am I?"),
	})
	if err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, patience, "two dead letters", func() bool { return b.depth("payments.dead") == 2 })
	dead := b.deadLetters()
	if l, err := dead.Show(t.Context(), "orders/"); err != nil || l.ID != "" || string(l.Body) != "who am I?" {
		t.Errorf("%+v, %v", l, err)
	}
	servers.Eventually(t, patience, "both given back", func() bool { return b.depth("payments.dead") == 2 })
	if n, err := dead.Discard(t.Context(), "orders/"); n != 1 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	servers.Eventually(t, patience, "the other stays", func() bool { return b.depth("payments.dead") == 1 })
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
