// Command shipping is the consumer of the quick start: it ships each order once, however often the order is delivered.
// It has no code for its end, because it may be killed at any time.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"os"
	"time"

	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
)

func main() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:shipping.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	must(err)
	db.SetMaxOpenConns(1) // SQLite has one writer at a time
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS shipments (order_id TEXT NOT NULL, item TEXT NOT NULL)`)
	must(err)
	inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: sqlinbox.SQLite, Consumer: "shipping"})
	must(err)
	must(inbox.Migrate(ctx)) // a table beside the shipments
	c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
		URL: "amqp://guest:guest@127.0.0.1:5672/", Queue: "shipping",
		Declare: &rabbitmqconsumer.Declare{
			Exchange: "shop", BindingKeys: []string{"order.placed"}, DeadLetterExchange: "shipping.dlx",
			Delays: []time.Duration{time.Second, 10 * time.Second, time.Minute},
		},
	})
	must(err)
	must(c.Run(ctx, inbox.Handler(ship)))
}

// ship is the effect of a message. It commits together with the inbox's row of the message, which stops copies.
func ship(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
	var order struct{ ID, Item string }
	if err := json.Unmarshal(m.Body, &order); err != nil {
		return consumer.Reject(err) // no retry can help: to the dead letters
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO shipments (order_id, item) VALUES (?, ?)`, order.ID, order.Item)
	return err
}

func must(err error) {
	if err != nil {
		slog.Error("shipping ends", "cause", err)
		os.Exit(1)
	}
}
