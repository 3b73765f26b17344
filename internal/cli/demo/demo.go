// Package demo tells the whole story on one terminal: a coordinator, an order service and a payment service, orders
// flowing, the coordinator killed in the middle, and the books balanced at the end.
//
// Redis and the AMQP broker are embedded in the demo's own process and forget everything with it. The coordinator is a
// child process, so that it can really be killed; the two services are the very code of producer-demo and consumer-demo.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/msghandler/msghandler/internal/demo/ledger"
	"github.com/msghandler/msghandler/internal/demo/orders"
	"github.com/msghandler/msghandler/internal/demo/payments"
	"github.com/msghandler/msghandler/internal/embedded"
	"github.com/msghandler/msghandler/internal/embedded/amqpbroker"
	"github.com/msghandler/msghandler/producer/marker/memory"
)

// Config says how the demo is told.
type Config struct {
	// Orders is how many there are. Of ten, one is rolled back and one commits but is never submitted.
	Orders int
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
	// parallel is how many orders are placed at once.
	parallel = 64
	// patience is when the demo gives up waiting for the books to balance.
	patience = 2 * time.Minute
)

// ErrUnbalanced says that an order was lost or invented, which must never happen.
var ErrUnbalanced = errors.New("the books do not balance")

// Run tells the story. It returns ErrUnbalanced when the promise was broken, and other errors when the demo could not be
// told.
func Run(ctx context.Context, config Config) (err error) {
	dir, err := os.MkdirTemp("", "msghandler-demo-")
	if err != nil {
		return fmt.Errorf("make a directory for the ledgers: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &stage{Config: config, dir: dir, begun: time.Now()}
	defer func() { err = errors.Join(err, s.strike()) }()
	if err := s.set(ctx); err != nil {
		return err
	}
	if err := s.play(ctx); err != nil {
		return err
	}
	return s.balance()
}

// stage is what the demo consists of.
type stage struct {
	Config
	dir   string
	begun time.Time

	redis       *embedded.Redis
	broker      *amqpbroker.Broker
	amqp        string
	coordinator *coordinator
	orders      *orders.Service
	payments    *payments.Service
	paying      chan error
	stopPaying  context.CancelFunc
	tally       orders.Tally
	log         *os.File
}

// set puts everything in its place, those who serve before those who call.
func (s *stage) set(ctx context.Context) error {
	fmt.Fprint(s.Out, `Redis and the AMQP broker of this demo live in this process. They are NOT durable: what they hold ends with it. The
coordinator is a process of its own, with the configuration that "msghandler serve" has by default, but shorter times.

`)
	var err error
	if s.log, err = os.Create(filepath.Join(s.dir, "log")); err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	if s.redis, err = embedded.StartRedis("127.0.0.1:0"); err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(s.log, nil))
	s.broker = amqpbroker.New(amqpbroker.Config{Logger: logger})
	address, err := s.broker.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	s.amqp = "amqp://guest:guest@" + address + "/"
	if s.coordinator, err = newCoordinator(s.Executable, s.redis.URL(), s.amqp, s.log); err != nil {
		return err
	}
	if err := s.coordinator.start(ctx); err != nil {
		return err
	}
	if err := s.startPayments(ctx, logger); err != nil {
		return err
	}
	s.orders, err = orders.New(orders.Config{
		Name: "orders", Coordinator: s.coordinator.grpc, Listen: "127.0.0.1:0", Dir: s.dir, Markers: memory.New(),
		Exchange: exchange, RoutingKey: routingKey, Logger: logger,
	})
	return err
}

// startPayments starts the payment service and waits until its queue is bound.
func (s *stage) startPayments(ctx context.Context, logger *slog.Logger) (err error) {
	consuming := make(chan struct{}, 1)
	s.payments, err = payments.New(payments.Config{
		URL: s.amqp, Queue: queue, Exchange: exchange, BindingKey: routingKey, Dir: s.dir, Prefetch: 100, Logger: logger,
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
	go func() { s.paying <- s.payments.Run(paying) }()
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

// play lets the orders flow, kills the coordinator in the middle and waits until every committed order is paid.
func (s *stage) play(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	picture := newPicture(s)
	defer picture.stop()
	placed := make(chan error, 1)
	go func() {
		placed <- s.orders.PlaceAll(ctx, newStream(s.Orders), parallel, &s.tally, func(orders.Order, error) {})
	}()

	if err := s.until(ctx, func() bool { return s.payments.Paid() >= s.Orders*2/5 }); err != nil {
		return err
	}
	s.coordinator.kill()
	picture.say("kill -9: the coordinator is dead, with messages in hand; orders wait, nothing is lost")
	if err := s.until(ctx, pause(time.Second)); err != nil {
		return err
	}
	picture.say("the coordinator is started again; what its predecessor held is taken up when the leases end")
	if err := s.coordinator.start(ctx); err != nil {
		return err
	}
	if err := <-placed; err != nil {
		return fmt.Errorf("place orders: %w", err)
	}
	picture.say("all orders are placed; what was never submitted is asked about")
	return s.until(ctx, func() bool { return s.payments.Paid() >= s.orders.Committed() })
}

// until looks again and again until cond holds.
func (s *stage) until(ctx context.Context, cond func() bool) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !cond() {
		select {
		case <-ticker.C:
		case err := <-s.paying:
			s.paying <- err
			return fmt.Errorf("the payment service has ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("%w: gave up waiting with %d orders committed, %d paid",
				ErrUnbalanced, s.orders.Committed(), s.payments.Paid())
		}
	}
	return nil
}

// pause is a condition that holds after a while.
func pause(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().After(end) }
}

// balance holds the two ledgers against each other.
func (s *stage) balance() error {
	committed, err := ledger.Read(filepath.Join(s.dir, "orders.jsonl"))
	if err != nil {
		return err
	}
	paid, err := ledger.Read(filepath.Join(s.dir, "payments.jsonl"))
	if err != nil {
		return err
	}
	copies, err := readCopies(filepath.Join(s.dir, "copies.jsonl"))
	if err != nil {
		return err
	}
	return s.writeBooks(ledger.Balance(committed, paid), copies)
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
	if s.payments != nil {
		s.stopPaying()
		errs = append(errs, <-s.paying, s.payments.Close())
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
