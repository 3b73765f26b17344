package payments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/demo/database"
)

// command is the command line of consumer-demo.
type command struct {
	AMQP     string `name:"amqp" default:"amqp://guest:guest@127.0.0.1:5672/" env:"AMQP" help:"The broker."`
	Queue    string `default:"payments" env:"QUEUE" help:"The queue, which is created if missing."`
	Exchange string `default:"orders" env:"EXCHANGE" help:"Where orders are announced."`
	Binding  string `default:"order.paid" env:"BINDING" help:"The binding key of the queue."`
	Database string `default:"sqlite:payments.db" env:"DATABASE" placeholder:"URL" help:"Where payments and shipments are kept: ${databases}. Default: ${default}."`
	Prefetch int    `default:"20" env:"PREFETCH" help:"How many orders may be in flight."`
}

const description = `A payment service that uses msghandler.

The service books the money for each paid order and ships its items, once. Redelivered orders are dropped.`

// Command runs the payment service until the context ends, and returns the exit status.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c command
	parser, err := kong.New(&c, kong.Name("consumer-demo"), kong.Description(description),
		kong.Vars{"databases": database.Help}, kong.Writers(stdout, stderr))
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err != nil {
		fmt.Fprintln(stderr, "consumer-demo:", err)
		return 2
	}
	if err := c.run(ctx, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "consumer-demo:", err)
		return 1
	}
	return 0
}

func (c *command) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	db, err := database.Open(c.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	service, err := Open(ctx, Config{
		URL: c.AMQP, Queue: c.Queue, Exchange: c.Exchange, BindingKey: c.Binding, Database: db, Prefetch: c.Prefetch,
		Consuming: func() { fmt.Fprintf(stdout, "waiting for orders in %s\n", c.Queue) },
		Logger:    slog.New(slog.NewTextHandler(stderr, nil)),
	})
	if err != nil {
		return err
	}
	var reporting sync.WaitGroup
	defer reporting.Wait()
	progress, done := context.WithCancel(ctx)
	defer done()
	reporting.Go(func() { report(progress, service, stdout) })
	return service.Run(ctx)
}

// report says once a second how many orders are shipped, when that has changed.
func report(ctx context.Context, service *Service, stdout io.Writer) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for last := (Status{}); ; {
		now, err := service.Status(ctx)
		if err == nil && now != last {
			fmt.Fprintf(stdout, "%d orders booked and shipped, %d copies dropped\n", now.Shipped, now.Copies)
			last = now
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
