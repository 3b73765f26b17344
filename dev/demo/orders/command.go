package orders

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/dev/demo/shop"
	"github.com/msghandler/msghandler/examples/database"
	"github.com/msghandler/msghandler/internal/ground/build"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/producer"
)

// command is the command line of producer-demo.
type command struct {
	Coordinator          string        `default:"127.0.0.1:9090" env:"COORDINATOR" help:"Where msghandler listens; none: without a coordinator, the outbox publishes to the broker itself."`
	TLSCA                string        `name:"tls-ca" env:"TLS_CA" placeholder:"FILE" help:"Talk to the coordinator with TLS; FILE has the certificates of its authorities. Default: without TLS."`
	TokenFile            string        `env:"TOKEN_FILE" placeholder:"FILE" help:"Show the coordinator the token of this file."`
	Listen               string        `env:"LISTEN" placeholder:"HOST:PORT" help:"Answer the coordinator's questions here. Default: nowhere; the service attends, and is asked over its own streams to the coordinator."`
	HTTPCallbacks        bool          `name:"http-callbacks" env:"HTTP_CALLBACKS" help:"Answer the coordinator's questions by HTTP, not by gRPC."`
	CoordinatorTokenFile string        `name:"coordinator-token-file" env:"COORDINATOR_TOKEN_FILE" placeholder:"FILE" help:"Answer callers with a token of this file, one a line, and no others. --listen needs it."`
	AMQP                 string        `name:"amqp" default:"amqp://guest:guest@127.0.0.1:5672/" env:"AMQP" help:"The broker, on which the shop's exchange and queues are declared."`
	HTTP                 string        `name:"http" env:"HTTP" placeholder:"HOST:PORT" help:"Take orders over HTTP here: POST /orders."`
	Orders               string        `env:"ORDERS" placeholder:"FILE" help:"Take orders from this file of JSON lines; - is standard input."`
	Database             string        `default:"sqlite:shop.db" env:"DATABASE" placeholder:"URL" help:"Where the shop is kept: ${databases}. Default: ${default}."`
	Products             int           `default:"1000" env:"PRODUCTS" help:"How many products are on sale: 1, 2, 3 and so on."`
	PayWithin            time.Duration `default:"${pay_within}" env:"PAY_WITHIN" help:"An order that is not paid within this time is cancelled. The same as at the consumers."`
	SweepEvery           time.Duration `default:"30s" env:"SWEEP_EVERY" help:"How often to cancel overdue orders whose time-out was lost."`
	Parallel             int           `default:"64" env:"PARALLEL" help:"How many buyers there are at once."`
	Stay                 bool          `env:"STAY" help:"Go on answering the coordinator after the last order of --orders."`

	Version kong.VersionFlag `help:"Print the version."`
}

const description = `A second-hand shop that uses msghandler.

The shop stores orders, takes each product from sale, and announces what happens to orders. Orders that are not paid in
time are cancelled, and their products are on sale again. Orders come over HTTP (--http) or from a file (--orders), as
{"id":1001,"buyer":7,"product":42}; there is one piece of each product. Orders of a file are paid at once, unless they
say "unpaid":true. An order may say how its payment fails: "fail":"declined", "silent" (commits, never submits),
"crash_before_commit" or "crash_after_commit". After a crash, start the service again with the same database and the
same file: no order is placed twice. consumer-demo handles the announcements, in the same database.`

// Command runs the order service until its orders are settled or the context ends, and returns the exit status.
func Command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var c command
	parser, err := kong.New(&c, kong.Name("producer-demo"), kong.Description(description),
		kong.Writers(stdout, stderr), kong.Vars{
			"databases": database.Help, "pay_within": shop.PayWithin.String(),
			"version": "producer-demo " + build.Read().String(),
		})
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err == nil && c.Listen != "" && c.CoordinatorTokenFile == "" {
		err = errors.New("--listen without --coordinator-token-file lets no coordinator ask; give both, or neither to attend")
	}
	if err == nil && c.HTTP == "" && c.Orders == "" && !c.Stay {
		err = errors.New("no source of orders; name one with --orders FILE or --http HOST:PORT")
	}
	if err != nil {
		fmt.Fprintln(stderr, "producer-demo:", err)
		return 2
	}
	if err := c.run(ctx, stdin, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "producer-demo:", err)
		return 1
	}
	return 0
}

func (c *command) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	db, err := database.Open(ctx, c.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	coordinator := c.Coordinator
	if coordinator == "none" {
		coordinator = ""
	}
	secured, err := c.tls()
	if err != nil {
		return err
	}
	service, err := Open(ctx, Config{
		Coordinator: coordinator, TLS: secured, TokenFile: c.TokenFile, Listen: c.Listen,
		Database: db, HTTPCallbacks: c.HTTPCallbacks, Coordinators: producer.Coordinators{TokenFile: c.CoordinatorTokenFile},
		AMQP: c.AMQP, PayWithin: c.PayWithin, Retries: shop.Retries, SweepEvery: c.SweepEvery, Products: c.Products,
		Logger: slog.New(slog.NewTextHandler(stderr, nil)),
	})
	if err != nil {
		return err
	}
	defer func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, service.Close(grace))
	}()
	if c.HTTP != "" {
		stop, err := serveHTTP(c.HTTP, service)
		if err != nil {
			return err
		}
		defer stop()
		fmt.Fprintf(stdout, "taking orders at http://%s/orders\n", c.HTTP)
	}
	if c.Orders != "" {
		if err := c.placeFile(ctx, service, stdin, stdout); err != nil {
			return err
		}
	}
	if c.HTTP != "" || c.Stay {
		select {
		case <-ctx.Done():
			return nil
		case err := <-service.Broken():
			return err
		}
	}
	return c.waitSettled(ctx, service, stdout)
}

// tls is how the coordinator is talked to; nil: without TLS.
func (c *command) tls() (*tls.Config, error) {
	if c.TLSCA == "" {
		return nil, nil //nolint:nilnil // no TLS is no error
	}
	authorities, err := os.ReadFile(c.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("--tls-ca: %s holds no certificate in PEM", c.TLSCA)
	}
	return config, nil
}

func (c *command) placeFile(ctx context.Context, service *Service, stdin io.Reader, stdout io.Writer) error {
	input := stdin
	if c.Orders != "-" {
		file, err := os.Open(c.Orders)
		if err != nil {
			return fmt.Errorf("open orders: %w", err)
		}
		defer file.Close()
		input = file
	}
	var tally Tally
	progress, done := context.WithCancel(ctx)
	defer done()
	var showing sync.WaitGroup
	showing.Go(func() { every(progress, func() { fmt.Fprintln(stdout, &tally) }) })
	err := service.PlaceAll(ctx, input, c.Parallel, &tally, func(o Order, err error) {
		fmt.Fprintf(stdout, "order %d: %v\n", o.ID, err)
	})
	done()
	showing.Wait()
	fmt.Fprintln(stdout, &tally)
	return err
}

// waitSettled goes on until every order is shipped or cancelled and every message has been taken over.
func (c *command) waitSettled(ctx context.Context, service *Service, stdout io.Writer) error {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for last := (Status{}); ; {
		now, err := service.Status(ctx)
		switch {
		case ctx.Err() != nil: // below
		case err != nil:
			fmt.Fprintln(stdout, err)
		case now.Settled():
			fmt.Fprintln(stdout, "every order is shipped or cancelled, and every message has been taken over")
			return nil
		case now != last:
			last = now
			fmt.Fprintf(stdout, "%d orders to be paid or cancelled within %v, %d to be shipped by consumer-demo, "+
				"%d messages to be taken over\n", now.Pending, c.PayWithin, now.Paid, now.Open)
		}
		select {
		case <-look.C:
		case err := <-service.Broken():
			return err
		case <-ctx.Done():
			return errors.New("stopped before every order was settled; start again with --stay to continue")
		}
	}
}

// every calls show once a second until the context ends.
func every(ctx context.Context, show func()) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			show()
		case <-ctx.Done():
			return
		}
	}
}

func serveHTTP(addr string, service *Service) (stop func(), err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for orders: %w", err)
	}
	server := &http.Server{Handler: service.Handler(), ReadHeaderTimeout: 5 * time.Second}
	var serving lifecycle.Group
	serving.Go(func() { _ = server.Serve(listener) }) // Serve ends with Shutdown
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx) // the end of the process cuts off slower calls
		_ = serving.Wait(ctx)
	}, nil
}
