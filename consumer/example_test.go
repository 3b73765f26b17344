package consumer_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/dedup/memory"
)

// A payment service that takes each order's money once.
func Example() {
	c, err := consumer.New(consumer.Config{
		URL:   "amqp://guest:guest@127.0.0.1:5672/",
		Queue: "payments",
		Dedup: memory.New(100_000),
		Declare: &consumer.Declare{
			Exchange: "orders", BindingKeys: []string{"order.paid"},
			DeadLetterExchange: "payments.dlx",
		},
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

// An order that is not paid in 15 minutes is cancelled: the trigger comes when its time is up, and the handler looks again in
// the statement that acts.
func ExampleTrigger() {
	trigger, err := consumer.NewTrigger("amqp://guest:guest@127.0.0.1:5672/", nil, "timeouts", 15*time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer trigger.Close()
	orderPlaced := func(ctx context.Context, id string) error {
		return trigger.Send(ctx, &consumer.Message{ID: id + ":time-up", Producer: "orders", Body: []byte(id)})
	}
	timeUp := func(db *sql.DB) consumer.HandlerFunc {
		return func(ctx context.Context, m *consumer.Message) error {
			// One row: it is cancelled. No row: it was paid meanwhile, or this is a copy, and nothing is to be done.
			_, err := db.ExecContext(ctx, `UPDATE orders SET state = 'cancelled' WHERE id = ? AND state = 'unpaid'`,
				string(m.Body))
			return err
		}
	}
	_, _ = orderPlaced, timeUp // the service calls the first, and hands the second to Run on the queue timeouts
}

func takePayment(_ context.Context, m *consumer.Message) error {
	var order struct{ AmountCents int64 }
	if err := json.Unmarshal(m.Body, &order); err != nil {
		return consumer.Reject(err) // It will never be readable: a dead letter.
	}
	_, err := fmt.Fprintln(os.Stderr, m.Key(), order.AmountCents)
	return err // When it is not nil the message comes again.
}
