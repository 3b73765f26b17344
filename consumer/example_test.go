package consumer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/dedup/memory"
)

// A payment service that takes each order's money once.
func Example() {
	c, err := consumer.New(consumer.Config{
		URL:     "amqp://guest:guest@127.0.0.1:5672/",
		Queue:   "payments",
		Dedup:   memory.New(100_000),
		Declare: &consumer.Declare{Exchange: "orders", BindingKeys: []string{"order.paid"}, DeadLetterExchange: "payments.dlx"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := consumer.Chain(consumer.HandlerFunc(takePayment), consumer.Logging(slog.Default()))

	// In a service this context ends on SIGTERM; here it has ended before it began, so Run returns at once.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fmt.Println(c.Run(ctx, handler))
	// Output: <nil>
}

func takePayment(_ context.Context, m *consumer.Message) error {
	var order struct{ AmountCents int64 }
	if err := json.Unmarshal(m.Body, &order); err != nil {
		return consumer.Reject(err) // It will never be readable: a dead letter.
	}
	_, err := fmt.Fprintln(os.Stderr, m.Key(), order.AmountCents)
	return err // When it is not nil the message comes again.
}
