// Package demo tells the whole story on one terminal: a coordinator, an order service and a payment service, orders
// flowing, the coordinator killed in the middle, and the books of both services balanced at the end.
//
// Redis and the AMQP broker are embedded in the demo's own process and forget everything with it. The coordinator is a
// child process, so that the demo can really kill the coordinator; the two services are the very code of producer-demo
// and consumer-demo, each with a database of its own.
package demo

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

	"github.com/msghandler/msghandler/internal/demo/books"
	"github.com/msghandler/msghandler/internal/demo/database"
	"github.com/msghandler/msghandler/internal/demo/orders"
	"github.com/msghandler/msghandler/internal/demo/payments"
	"github.com/msghandler/msghandler/internal/embedded"
	"github.com/msghandler/msghandler/internal/embedded/amqpbroker"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/producer"
)

// config configures the story.
type config struct {
	// Orders is the number of orders. Of every ten orders, the fourth is declined, the sixth never paid, and the payment
	// of the eighth commits but is never submitted.
	Orders int
	// Database is an empty database that both services share, named as in database.Help; empty: SQLite files.
	Database string
	// Executable is the msghandler binary that is started, and killed, as the coordinator.
	Executable string
	// Out is where the story goes; Live redraws a table there instead of adding lines.
	Out  io.Writer
	Live bool
}

const (
	exchange   = "orders"
	routingKey = "order.paid"
	queue      = "payments"
	// parallel is how many customers there are at once.
	parallel = 32
	// payWithin is how long an order may stay unpaid; in a real shop it would be 15 minutes.
	payWithin = 4 * time.Second
	// patience is when the demo gives up waiting for the books to balance.
	patience = 2 * time.Minute
)

// errUnbalanced says that an order was lost or invented, which must never happen.
var errUnbalanced = errors.New("the books do not balance")

// run plays the story. The error is errUnbalanced when the promise was broken, and another error when the demo failed.
func run(ctx context.Context, c config) (err error) {
	dir, err := os.MkdirTemp("", "msghandler-demo-")
	if err != nil {
		return fmt.Errorf("make a directory for the databases: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &stage{config: c, dir: dir, begun: time.Now()}
	s.picture.stage = s
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
	// ofOrders and ofPayments are the databases of the two services.
	ofOrders, ofPayments *database.DB
	orders               *orders.Service
	payments             *payments.Service
	paying               chan error
	// background has the goroutines of the payment service and of the customers.
	background lifecycle.Group
	stopPaying context.CancelFunc
	tally      orders.Tally
	// failure is why an order could not be placed or paid; nil where there is none.
	failure atomic.Pointer[error]
	picture picture
	log     *os.File
}

// set starts all parts, servers before their clients.
func (s *stage) set(ctx context.Context) error {
	fmt.Fprint(s.Out, `Redis and the AMQP broker of this demo live in this process. They are NOT durable: their data ends
with it. The coordinator is a process of its own, with the configuration that "msghandler serve" has by default, but
shorter times. The order service and the payment service are those of producer-demo and consumer-demo, each with a
database.

`)
	if err := s.openDatabases(); err != nil {
		return err
	}
	logger, err := s.setServers(ctx)
	if err != nil {
		return err
	}
	if err := s.startPayments(ctx, logger); err != nil {
		return err
	}
	s.orders, err = orders.Open(ctx, orders.Config{
		Name: "orders", Coordinator: s.coordinator.grpc, Listen: "127.0.0.1:0", Database: s.ofOrders, AMQP: s.amqp,
		Exchange: exchange, RoutingKey: routingKey, PayWithin: payWithin, Logger: logger,
		Coordinators: producer.Coordinators{Anyone: true}, // on the loopback, and for as long as the demo lasts
	})
	if err != nil {
		return err
	}
	now, err := s.progress(ctx)
	if err == nil && now != (progress{}) {
		err = errors.New("the database holds orders of an earlier run; give an empty one")
	}
	return err
}

// openDatabases opens a database for each of the two services, or their common database.
func (s *stage) openDatabases() (err error) {
	for name, db := range map[string]**database.DB{"orders.db": &s.ofOrders, "payments.db": &s.ofPayments} {
		url := s.Database
		if url == "" {
			// Data that ends with this process need not be on the disk.
			url = "sqlite:" + filepath.Join(s.dir, name) + "?_pragma=synchronous(OFF)"
		}
		if *db, err = database.Open(url); err != nil {
			return err
		}
	}
	return nil
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

// startPayments starts the payment service and waits until its queue is bound.
func (s *stage) startPayments(ctx context.Context, logger *slog.Logger) (err error) {
	consuming := make(chan struct{}, 1)
	s.payments, err = payments.Open(ctx, payments.Config{
		URL: s.amqp, Queue: queue, Exchange: exchange, BindingKey: routingKey, Database: s.ofPayments, Prefetch: 100,
		Logger: logger,
		Consuming: func() {
			select {
			case consuming <- struct{}{}:
			default: // a reconnect
			}
		},
	})
	if err != nil {
		return err
	}
	paying, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopPaying, s.paying = stop, make(chan error, 1)
	s.background.Go(func() { s.paying <- s.payments.Run(paying) })
	select {
	case <-consuming:
		return nil
	case err := <-s.paying:
		s.paying <- err
		return fmt.Errorf("the payment service has ended: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// play lets the orders flow, kills the coordinator in the middle and waits until every order is shipped or cancelled.
func (s *stage) play(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	placed := make(chan error, 1)
	s.background.Go(func() {
		placed <- s.orders.PlaceAll(ctx, newStream(s.Orders), parallel, &s.tally, s.fail)
	})

	if err := s.until(ctx, func(now progress) bool { return now.payments.Shipped >= s.Orders/4 }); err != nil {
		return err
	}
	s.coordinator.kill()
	s.picture.say("kill -9: the coordinator is dead, with messages in hand; orders wait, nothing is lost")
	if err := s.until(ctx, pause(time.Second)); err != nil {
		return err
	}
	s.picture.say("the coordinator is started again; what its predecessor held is taken up when the leases end")
	if err := s.coordinator.start(ctx); err != nil {
		return err
	}
	var failed error
	all := func(progress) bool {
		select {
		case failed = <-placed:
			return true
		default:
			return false
		}
	}
	if err := s.until(ctx, all); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("place orders: %w", failed)
	}
	s.picture.say(fmt.Sprintf("all customers have been here; what was never submitted is asked about, "+
		"and what is not paid within %v is cancelled", payWithin))
	return s.until(ctx, func(now progress) bool { return now.Unpaid == 0 && now.payments.Shipped >= now.Paid })
}

// fail keeps why an order could not be placed or paid, the first of them.
func (s *stage) fail(o orders.Order, err error) {
	err = fmt.Errorf("order %s could not be placed or paid: %w", o.ID, err)
	s.failure.CompareAndSwap(nil, &err)
}

// progress is how the two services stand.
type progress struct {
	orders.Status
	payments payments.Status
}

func (s *stage) progress(ctx context.Context) (now progress, err error) {
	if now.payments, err = s.payments.Status(ctx); err == nil {
		now.Status, err = s.orders.Status(ctx)
	}
	return now, err
}

// until looks again and again until cond holds.
func (s *stage) until(ctx context.Context, cond func(now progress) bool) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		now, err := s.progress(ctx)
		s.picture.show(now)
		switch {
		case ctx.Err() != nil:
			return gaveUp(ctx, now)
		case err != nil:
			return err
		case cond(now):
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		case err := <-s.orders.Broken():
			return fmt.Errorf("the order service has ended: %w", err)
		case err := <-s.paying:
			s.paying <- err
			return fmt.Errorf("the payment service has ended: %w", err)
		}
	}
}

// gaveUp says why the demo waits no longer. The books are blamed only when there was time enough.
func gaveUp(ctx context.Context, now progress) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("interrupted")
	}
	return fmt.Errorf("%w: gave up waiting with %d orders paid, %d shipped, %d unpaid",
		errUnbalanced, now.Paid, now.payments.Shipped, now.Unpaid)
}

// pause is a condition that holds after a while.
func pause(d time.Duration) func(progress) bool {
	end := time.Now().Add(d)
	return func(progress) bool { return time.Now().After(end) }
}

// balance holds the two databases against each other.
func (s *stage) balance(ctx context.Context) error {
	b, err := books.Read(ctx, s.ofOrders, s.ofPayments)
	if err != nil {
		return err
	}
	return s.writeBooks(b)
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
	if s.stopPaying != nil {
		s.stopPaying()
		errs = append(errs, <-s.paying)
	}
	errs = append(errs, s.background.Wait(grace))
	for _, db := range []*database.DB{s.ofOrders, s.ofPayments} {
		if db != nil {
			errs = append(errs, db.Close())
		}
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
