package rabbitmqconsumer_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/dedup/memory"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
)

// A payment service that charges each order once: the inbox's row of the message is the first row of the transaction.
func Example() {
	ctx := context.Background()                                          // in a service a context that ends on SIGTERM
	db, err := sql.Open("pgx", "postgres://payments@127.0.0.1/payments") // import the driver of your database
	if err != nil {
		log.Fatal(err)
	}
	inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: sqlinbox.PostgreSQL, Consumer: "payments"})
	if err != nil {
		log.Fatal(err)
	}
	if err := inbox.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
		URL:   "amqp://guest:guest@127.0.0.1:5672/",
		Queue: "payments",
		Declare: &rabbitmqconsumer.Declare{
			Exchange: "orders", BindingKeys: []string{"order.paid"}, DeadLetterExchange: "payments.dlx",
			Delays: []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	charge := func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO charges (order_id) VALUES ($1)`, m.ID)
		return err // an error: retried after each of Delays, and then among the dead letters
	}
	if err := c.Run(ctx, inbox.Handler(charge)); err != nil {
		log.Fatal(err)
	}
}

// A service without an SQL database drops the copies that its memory remembers. A process that dies after the effect
// handles the message again, so this is for effects that do no harm twice.
func Example_withoutSQL() {
	c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
		URL:   "amqp://guest:guest@127.0.0.1:5672/",
		Queue: "payments",
		Dedup: memory.New(100_000),
		Declare: &rabbitmqconsumer.Declare{
			Exchange: "orders", BindingKeys: []string{"order.paid"},
			DeadLetterExchange: "payments.dlx",
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := consumer.Chain(consumer.HandlerFunc(takePayment), consumer.Logging(slog.Default()))

	// In a service this context ends on SIGTERM; here the context has already ended, so Run returns at once.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fmt.Println(c.Run(ctx, handler))
	// Output: <nil>
}

// An order that is not paid within 15 minutes is cancelled: the trigger arrives after this time, and the handler's
// statement checks the order again.
func ExampleTrigger() {
	trigger, err := rabbitmqconsumer.NewTrigger("amqp://guest:guest@127.0.0.1:5672/", nil, "timeouts", 15*time.Minute)
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
			// One row: the order is cancelled. No row: the order was paid meanwhile, or the message is a copy.
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
		return consumer.Reject(err) // a body that stays unreadable: a dead letter
	}
	_, err := fmt.Fprintln(os.Stderr, m.Key(), order.AmountCents)
	return err // a failure: the message is redelivered
}
