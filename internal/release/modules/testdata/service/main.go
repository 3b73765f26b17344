// Command service is a user's program: it sends with markers in its database, and consumes.
package main

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"os/signal"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/dedup/memory"
	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err == nil {
		err = serve(ctx, db)
	}
	if err != nil {
		slog.Error(err.Error())
		os.Exit(1)
	}
}

func serve(ctx context.Context, db *sql.DB) error {
	markers, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.PostgreSQL})
	if err != nil {
		return err
	}
	p, err := producer.New(producer.Config{Name: "orders", Coordinator: "127.0.0.1:9090", Markers: markers})
	if err != nil {
		return err
	}
	defer p.Close(context.WithoutCancel(ctx))
	m := producer.Message{ID: "1001", Exchange: "orders", RoutingKey: "order.paid", Body: []byte("{}")}
	if err := markers.Send(ctx, p, m, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE orders SET paid = true WHERE id = 1001")
		return err
	}); err != nil {
		return err
	}
	c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
		URL: "amqp://guest:guest@127.0.0.1:5672/", Queue: "payments", Dedup: memory.New(1000),
	})
	if err != nil {
		return err
	}
	return c.Run(ctx, consumer.HandlerFunc(func(_ context.Context, m *consumer.Message) error {
		slog.Info("order paid", "id", m.ID)
		return nil
	}))
}
