package rabbitmq_test

import (
	"context"
	"testing"
	"time"

	rabbit "github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

func TestTriggerArrivesAfterItsDelay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const delay = 500 * time.Millisecond
	trigger, err := rabbit.NewTrigger(b.vhost.URL, nil, "payments", delay)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trigger.Close)
	send := func(id string) {
		if err := trigger.Send(t.Context(), &consumer.Message{
			ID: id, Producer: "orders", ContentType: "text/plain", Headers: map[string]string{"why": "unpaid"},
			Body: []byte("look"),
		}); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan *consumer.Message, 10)
	b.start(b.config(), func(_ context.Context, m *consumer.Message) error {
		got <- m
		return nil
	})
	sentAt := time.Now()
	send("1")
	m := take(t, got, "the trigger")
	if m.Key() != "orders/1" || string(m.Body) != "look" || m.Headers["why"] != "unpaid" ||
		m.ContentType != "text/plain" ||
		time.Since(sentAt) < delay {
		t.Errorf("after %v came %+v", time.Since(sentAt), m)
	}
	b.vhost.CloseConnections(3)
	b.waitForQueue("payments")
	servers.Eventually(t, patience, "sent over a new connection", func() bool {
		sentAt = time.Now()
		return trigger.Send(t.Context(), &consumer.Message{ID: "2", Producer: "orders"}) == nil
	})
	if m := take(t, got, "the second"); m.ID != "2" || time.Since(sentAt) < delay {
		t.Errorf("%s came after %v", m.ID, time.Since(sentAt))
	}
	for _, wrong := range []time.Duration{0, time.Microsecond} {
		if _, err := rabbit.NewTrigger(b.vhost.URL, nil, "payments", wrong); err == nil {
			t.Errorf("a delay of %v is taken", wrong)
		}
	}
}
