package rabbitmq_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
)

// brittle is an error whose methods panic on a nil pointer.
type brittle struct{ why error }

func (b *brittle) Error() string { return b.why.Error() }
func (b *brittle) Unwrap() error { return b.why }

func TestPanickingErrorIsNamedByType(t *testing.T) {
	t.Parallel()
	var nothing *brittle
	for name, h := range map[string]consumer.HandlerFunc{
		"returned": func(context.Context, *consumer.Message) error { return nothing },
		"panicked": func(context.Context, *consumer.Message) error { panic(nothing) },
	} {
		var panicked *consumer.PanicError
		err := consumer.Chain(h, consumer.Recover()).Handle(t.Context(), order)
		if !errors.As(err, &panicked) || !strings.Contains(err.Error(), "rabbitmq_test.brittle") || len(panicked.Stack) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// publishAs publishes an order with an id and headers.
func (b *bench) publishAs(id string, headers amqp.Table) {
	b.Helper()
	err := b.ch.PublishWithContext(b.Context(), "orders", "order.paid", true, false, amqp.Publishing{
		MessageId: id, AppId: "orders", Body: []byte("pay"), DeliveryMode: amqp.Persistent, Headers: headers,
	})
	if err != nil {
		b.Fatal(err)
	}
}

// Anybody may publish to an exchange.
func TestHeaderNumberNeverEndsTheProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.delayed(10*time.Millisecond, 20*time.Millisecond)
	config.Declare.QueueType = amqp.QueueTypeClassic // a classic queue sets no x-delivery-count
	config.Dedup = nil
	b.start(config, func(_ context.Context, m *consumer.Message) error {
		if m.Retries < 0 || m.Deliveries < 0 || m.Attempt < 1 {
			t.Errorf("%s: %+v", m.ID, m)
		}
		return errors.New("not now")
	})
	numbers := []any{int64(-1), int64(-1 << 63), int32(-1), "-7", int64(1<<63 - 1), "99999999999999999999", -1.5, "many"}
	for i, n := range numbers {
		b.publishAs(strconv.Itoa(i), amqp.Table{
			consumer.HeaderRetries: n, "msghandler-attempt": n, "x-delivery-count": n,
			"x-death": []any{amqp.Table{"count": n, "queue": "payments"}},
		})
	}
	for range numbers {
		b.get("payments.dead")
	}
}
