package payments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/alecthomas/kong"
)

// command is the command line of consumer-demo.
type command struct {
	AMQP     string `name:"amqp" default:"amqp://guest:guest@127.0.0.1:5672/" env:"AMQP" help:"The broker."`
	Queue    string `default:"payments" env:"QUEUE" help:"The queue; it is made if it is not there."`
	Exchange string `default:"orders" env:"EXCHANGE" help:"Where orders are announced."`
	Binding  string `default:"order.paid" env:"BINDING" help:"By which key the queue is bound."`
	Dir      string `default:"." env:"DIR" help:"Where payments.jsonl and copies.jsonl are kept."`
	Prefetch int    `default:"20" env:"PREFETCH" help:"How many orders may be in hand at once."`
}

const description = `A payment service that uses msghandler.

It takes a payment for each order that is announced, once, and writes it to payments.jsonl. Orders that come again are
dropped and noted in copies.jsonl, with what marks them as copies.`

// Command runs the payment service until the context ends, and returns the exit status.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c command
	parser, err := kong.New(&c, kong.Name("consumer-demo"), kong.Description(description), kong.Writers(stdout, stderr))
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
	service, err := New(Config{
		URL: c.AMQP, Queue: c.Queue, Exchange: c.Exchange, BindingKey: c.Binding, Dir: c.Dir, Prefetch: c.Prefetch,
		Consuming: func() { fmt.Fprintf(stdout, "waiting for orders in %s\n", c.Queue) },
		Logger:    slog.New(slog.NewTextHandler(stderr, nil)),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	progress, done := context.WithCancel(ctx)
	defer done()
	go report(progress, service, stdout)
	err = service.Run(ctx)
	fmt.Fprintf(stdout, "%d orders paid, %d copies dropped\n", service.Paid(), service.Copies())
	return err
}

// report says once a second how many orders are paid, when that has changed.
func report(ctx context.Context, service *Service, stdout io.Writer) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	last := service.Paid()
	for {
		select {
		case <-ticker.C:
			if paid := service.Paid(); paid != last {
				fmt.Fprintf(stdout, "%d orders paid, %d copies dropped\n", paid, service.Copies())
				last = paid
			}
		case <-ctx.Done():
			return
		}
	}
}
