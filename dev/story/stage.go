// Package story tells the whole story on one terminal: a coordinator, a second-hand shop and its consumers, orders
// flowing, the coordinator killed in the middle, dead letters replayed, and the shop's books balanced at the end.
//
// Redis and the AMQP broker are embedded in the demo's own process and forget everything with it. The coordinator is a
// child process, so that the demo can really kill the coordinator. Shop and consumers are the very code of
// producer-demo and consumer-demo, on one database.
package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/dev/demo/consumers"
	"github.com/msghandler/msghandler/dev/demo/orders"
	"github.com/msghandler/msghandler/dev/embedded"
	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
	"github.com/msghandler/msghandler/examples/database"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// config configures the story.
type config struct {
	// Orders is the number of buyers, of whom customer describes each.
	Orders int
	// Database is an empty database, named as in database.Help; empty: a SQLite file.
	Database string
	// Executable is the msghandler binary that is started, and killed, as the coordinator.
	Executable string
	// Out is where the story goes.
	Out io.Writer
}

const (
	// parallel is how many buyers there are at once.
	parallel = 32
	// payWithin is how long an order may stay unpaid; in a real shop it would be 15 minutes.
	payWithin = 4 * time.Second
	// patience is when the demo gives up waiting for the books to balance.
	patience = 2 * time.Minute
)

// retries are the delays after a failure of a consumer; in a real shop they would be minutes.
var retries = []time.Duration{300 * time.Millisecond, 600 * time.Millisecond}

// errUnbalanced says that an order was lost or invented, which must never happen.
var errUnbalanced = errors.New("the books do not balance")

// run plays the story. The error is errUnbalanced when the promise was broken, and another error when the demo failed.
func run(ctx context.Context, c config) (err error) {
	dir, err := os.MkdirTemp("", "msghandler-dev-")
	if err != nil {
		return fmt.Errorf("make a directory for the databases: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &stage{config: c, dir: dir, begun: time.Now()}
	defer func() { err = errors.Join(err, s.strike()) }()
	if err := s.set(ctx); err != nil {
		return err
	}
	if err := s.play(ctx); err != nil {
		return err
	}
	return s.balance(ctx)
}

// stage is what the demo consists of.
type stage struct {
	config
	dir   string
	begun time.Time

	redis       *embedded.Redis
	broker      *amqpbroker.Broker
	amqp        string
	coordinator *coordinator
	database    *database.DB
	orders      *orders.Service
	consumers   *consumers.Service
	consuming   chan error
	courier     courier
	// background has the goroutines of the consumers and of the buyers.
	background    lifecycle.Group
	stopConsuming context.CancelFunc
	tally         orders.Tally
	// failure is why an order could not be placed or paid; nil where there is none.
	failure atomic.Pointer[error]
	// shown is when the progress was shown last.
	shown time.Time
	// replayed is the number of dead letters that were replayed, and left names the others.
	replayed int
	left     []string
	log      *os.File
}

// set starts all parts, servers before their clients.
func (s *stage) set(ctx context.Context) error {
	fmt.Fprint(s.Out, `A second-hand shop: each product is sold once, and an order that is not paid in time is cancelled.
Inventory, fulfilment and buyers learn of orders by events. Redis and the AMQP broker of this demo live in this process.
They are NOT durable: their data ends with it. The coordinator is a process of its own, with the configuration that
"msghandler serve" has by default, but shorter times. Shop and consumers are those of producer-demo and consumer-demo.

`)
	if err := s.openDatabase(ctx); err != nil {
		return err
	}
	logger, err := s.setServers(ctx)
	if err != nil {
		return err
	}
	if err := s.startConsumers(ctx, logger); err != nil {
		return err
	}
	s.orders, err = orders.Open(ctx, orders.Config{
		Coordinator: s.coordinator.grpc, Database: s.database, Products: s.Orders,
		AMQP: s.amqp, PayWithin: payWithin, Retries: retries, Logger: logger,
	})
	if err != nil {
		return err
	}
	now, err := s.progress(ctx)
	if err == nil && (now.Placed() > 0 || now.effects.Inventory > 0) {
		err = errors.New("the database holds orders of an earlier run; give an empty one")
	}
	return err
}

// openDatabase opens the database for the shop: a file of SQLite where no other is named.
func (s *stage) openDatabase(ctx context.Context) (err error) {
	if s.Database != "" {
		s.database, err = database.Open(ctx, s.Database)
		return err
	}
	if s.database, err = database.Open(ctx, "sqlite:"+filepath.Join(s.dir, "shop.db")); err != nil {
		return err
	}
	// Data that ends with this process need not be on the disk.
	_, err = s.database.ExecContext(ctx, `PRAGMA synchronous = OFF`)
	return err
}

// setServers starts Redis, the broker and the coordinator.
func (s *stage) setServers(ctx context.Context) (*slog.Logger, error) {
	var err error
	if s.log, err = os.Create(filepath.Join(s.dir, "log")); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	if s.redis, err = embedded.StartRedis("127.0.0.1:0"); err != nil {
		return nil, err
	}
	logger := slog.New(slog.NewTextHandler(s.log, nil))
	s.broker = amqpbroker.New(amqpbroker.Config{Logger: logger})
	address, err := s.broker.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.amqp = "amqp://guest:guest@" + address + "/"
	if s.coordinator, err = newCoordinator(s.Executable, s.redis.URL(), s.amqp, s.log); err != nil {
		return nil, err
	}
	return logger, s.coordinator.start(ctx)
}

// startConsumers starts the consumers and waits until they wait for events.
func (s *stage) startConsumers(ctx context.Context, logger *slog.Logger) (err error) {
	waiting := make(chan struct{})
	s.consumers, err = consumers.Open(ctx, consumers.Config{
		URL: s.amqp, Database: s.database, PayWithin: payWithin, Retries: retries, Prefetch: 100,
		Courier: s.courier.take, Consuming: func() { close(waiting) }, Logger: logger,
	})
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopConsuming, s.consuming = stop, make(chan error, 1)
	s.background.Go(func() { s.consuming <- s.consumers.Run(working) })
	select {
	case <-waiting:
		return nil
	case err := <-s.consuming:
		s.consuming <- err
		return fmt.Errorf("the consumers have ended: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// strike takes everything down in reverse.
func (s *stage) strike() error {
	grace, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var errs []error
	if s.orders != nil {
		errs = append(errs, s.orders.Close(grace))
	}
	if s.coordinator != nil {
		s.coordinator.stop(grace)
	}
	if s.stopConsuming != nil {
		s.stopConsuming()
		errs = append(errs, <-s.consuming)
	}
	errs = append(errs, s.background.Wait(grace))
	if s.database != nil {
		errs = append(errs, s.database.Close())
	}
	if s.broker != nil {
		errs = append(errs, s.broker.Close())
	}
	if s.redis != nil {
		s.redis.Close()
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	return errors.Join(errs...)
}
