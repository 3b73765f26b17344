// Command invoices writes one invoice for each order, however often the order is delivered.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/examples/database"
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	url := cmp.Or(os.Getenv("INVOICES_DATABASE"), "sqlite:invoices.db")
	broker := cmp.Or(os.Getenv("INVOICES_AMQP"), "amqp://guest:guest@127.0.0.1:5672/")
	if err := run(ctx, url, broker); err != nil {
		slog.Error("invoices failed; the process ends", "cause", err)
		os.Exit(1)
	}
}

// run writes invoices until the context ends, and finishes those under way.
func run(ctx context.Context, url, broker string) error {
	db, err := database.Open(ctx, url)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS invoices (
		order_id `+db.Key()+` NOT NULL, item VARCHAR(64) NOT NULL, quantity INTEGER NOT NULL)`)
	if err != nil {
		return err
	}
	inbox, err := sqlinbox.New(sqlinbox.Config{
		DB: db.DB, Dialect: db.Dialect, Consumer: "invoices", TxOptions: db.TxOptions(),
	})
	if err != nil {
		return err
	}
	if err := inbox.Migrate(ctx); err != nil {
		return err
	}
	c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
		URL: broker, Queue: "invoices", Concurrency: 4,
		Declare: &rabbitmqconsumer.Declare{
			Exchange: "orders", BindingKeys: []string{"order.placed"}, DeadLetterExchange: "invoices.dlx",
			Delays: []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute},
		},
	})
	if err != nil {
		return err
	}
	return c.Run(ctx, consumer.Chain(inbox.Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
		return write(ctx, tx, db, m)
	}), consumer.Logging(slog.Default())))
}

// write is the effect of a message. It commits together with the inbox's row of the message, which stops copies.
func write(ctx context.Context, tx *sql.Tx, db *database.DB, m *consumer.Message) error {
	var order struct {
		ID, Item string
		Quantity int
	}
	if err := json.Unmarshal(m.Body, &order); err != nil {
		return consumer.Reject(err) // no retry can help: to the dead letters
	}
	_, err := tx.ExecContext(ctx, db.SQL(`INSERT INTO invoices (order_id, item, quantity) VALUES (?, ?, ?)`),
		order.ID, order.Item, order.Quantity)
	return err // any error: a retry after each of Delays, then to the dead letters
}
