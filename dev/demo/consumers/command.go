package consumers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/dev/demo/shop"
	"github.com/msghandler/msghandler/examples/database"
	"github.com/msghandler/msghandler/internal/ground/build"
)

// command is the command line of consumer-demo.
type command struct {
	AMQP      string        `name:"amqp" default:"amqp://guest:guest@127.0.0.1:5672/" env:"AMQP" help:"The broker."`
	Database  string        `default:"sqlite:shop.db" env:"DATABASE" placeholder:"URL" help:"The database of producer-demo: ${databases}. Default: ${default}."`
	PayWithin time.Duration `default:"${pay_within}" env:"PAY_WITHIN" help:"How long an order may stay unpaid. The same as at producer-demo."`
	Prefetch  int           `default:"20" env:"PREFETCH" help:"How many events of each queue may be in flight."`

	Version kong.VersionFlag `help:"Print the version."`
}

const description = `The consumers of a second-hand shop that uses msghandler.

The inventory reserves the product of each new order, the fulfilment ships each paid order, the status sync shows buyers
what happened, and the time-out cancels orders that are not paid in time. Each event has one effect; redelivered events
are dropped, and events that can never be handled go to order.dlq.queue.`

// Command runs the consumers until the context ends, and returns the exit status.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c command
	parser, err := kong.New(&c, kong.Name("consumer-demo"), kong.Description(description),
		kong.Writers(stdout, stderr), kong.Vars{
			"databases": database.Help, "pay_within": shop.PayWithin.String(),
			"version": "consumer-demo " + build.Read().String(),
		})
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
	db, err := database.Open(ctx, c.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	service, err := Open(ctx, Config{
		URL: c.AMQP, Database: db, PayWithin: c.PayWithin, Retries: shop.Retries, Prefetch: c.Prefetch,
		Consuming: func() { fmt.Fprintln(stdout, "waiting for orders in four queues") },
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

// report says once a second what became of the events, when that has changed.
func report(ctx context.Context, service *Service, stdout io.Writer) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for last := (shop.Effects{}); ; {
		now, err := service.Status(ctx)
		if err == nil && now != last {
			fmt.Fprintf(stdout, "%d products reserved, %d orders shipped, %d statuses shown, %d copies dropped\n",
				now.Inventory, now.Shipments, now.Views, now.Copies)
			last = now
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
