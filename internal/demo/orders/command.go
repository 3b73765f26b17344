package orders

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	markerredis "github.com/msghandler/msghandler/producer/marker/redis"
)

// command is the command line of producer-demo.
type command struct {
	Coordinator    string `default:"127.0.0.1:9090" env:"COORDINATOR" help:"Where msghandler listens."`
	Name           string `default:"orders" env:"NAME" help:"This producer's name."`
	Listen         string `default:"127.0.0.1:7001" env:"LISTEN" help:"Where to answer the coordinator's questions."`
	CallbackTarget string `env:"CALLBACK_TARGET" help:"How the coordinator reaches --listen. Default: --listen."`
	HTTP           string `name:"http" env:"HTTP" placeholder:"HOST:PORT" help:"Take orders over HTTP here: POST /orders."`
	Orders         string `env:"ORDERS" placeholder:"FILE" help:"Take orders from this file of JSON lines; - is standard input."`
	Dir            string `default:"." env:"DIR" help:"Where the ledger orders.jsonl is kept."`
	Markers        string `default:"memory" env:"MARKERS" help:"Where business markers are kept: memory, or a redis:// URL."`
	Exchange       string `default:"orders" env:"EXCHANGE" help:"Where orders are announced."`
	RoutingKey     string `default:"order.paid" env:"ROUTING_KEY" help:"With which routing key."`
	Parallel       int    `default:"64" env:"PARALLEL" help:"How many orders are placed at once."`
	Stay           bool   `env:"STAY" help:"Go on answering the coordinator after the last order of --orders."`
}

const description = `An order service that uses msghandler.

It stores orders in a ledger and announces each as a message. Orders come over HTTP (--http) or from a file (--orders), as
{"id":"1001","amount_cents":1999}. An order may say how it shall fail: "fail":"rollback", "silent" (commits, never
submits), "slow", "crash_before_commit", "crash_after_commit" or "crash_before_submit". Start it again with the same
--dir and the same file after a crash: what was placed is not placed twice.`

// Command runs the order service until its orders are settled or the context ends, and returns the exit status.
func Command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var c command
	parser, err := kong.New(&c, kong.Name("producer-demo"), kong.Description(description), kong.Writers(stdout, stderr))
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err == nil && c.HTTP == "" && c.Orders == "" && !c.Stay {
		err = errors.New("where do orders come from? Give --orders FILE or --http HOST:PORT")
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
	markers, closeMarkers, err := openStore(c.Markers, c.Name)
	if err != nil {
		return err
	}
	defer closeMarkers()
	service, err := New(Config{
		Name: c.Name, Coordinator: c.Coordinator, Listen: c.Listen, CallbackTarget: c.CallbackTarget, Dir: c.Dir,
		Markers: markers, Exchange: c.Exchange, RoutingKey: c.RoutingKey,
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
		<-ctx.Done()
		return nil
	}
	return waitSettled(ctx, service, stdout)
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
	go every(progress, func() { fmt.Fprintln(stdout, &tally) })
	err := service.PlaceAll(ctx, input, c.Parallel, &tally, func(o Order, err error) {
		if o.Fail != Rollback {
			fmt.Fprintf(stdout, "order %s: %v\n", o.ID, err)
		}
	})
	done()
	fmt.Fprintln(stdout, &tally)
	return err
}

// settleEvery is how often the coordinator is asked about orders that it has not told of by itself.
const settleEvery = 5 * time.Second

// waitSettled goes on answering until the coordinator knows the fate of every order.
func waitSettled(ctx context.Context, service *Service, stdout io.Writer) error {
	show := time.NewTicker(time.Second)
	defer show.Stop()
	settle := time.NewTicker(settleEvery)
	defer settle.Stop()
	for service.Open() > 0 {
		select {
		case <-show.C:
			fmt.Fprintf(stdout, "%d orders to be confirmed\n", service.Open())
		case <-settle.C:
			if _, err := service.Settle(ctx); err != nil {
				fmt.Fprintln(stdout, err)
			}
		case <-ctx.Done():
			return fmt.Errorf("stopped with %d orders to be confirmed; start again with --stay to answer for them", service.Open())
		}
	}
	fmt.Fprintln(stdout, "the coordinator knows the fate of every order")
	return nil
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
	go func() { _ = server.Serve(listener) }() // ends with Shutdown
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx) // what does not end in time is cut off by the end of the process
	}, nil
}

// openStore opens the marker store that the flag names.
func openStore(where, name string) (store marker.Store, closeStore func(), err error) {
	if where == "memory" {
		return memory.New(), func() {}, nil
	}
	options, err := redis.ParseURL(where)
	if err != nil {
		return nil, nil, fmt.Errorf("--markers is neither memory nor a redis:// URL: %w", err)
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	store, err = markerredis.New(markerredis.Config{Client: client, Producer: name})
	return store, func() { _ = client.Close() }, err
}
