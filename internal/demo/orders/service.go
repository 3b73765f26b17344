// Package orders is an order service on the SDKs, written to be read: start with Place, Pay and cancelUnpaid.
//
// A customer places an order, which takes its items from the stock, and pays; an order without a payment in time is
// cancelled, and its items go back. Each step is a transaction in the service's own database (shop.go). Each
// announcement is a message that goes out if, and only if, its transaction commits.
package orders

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/demo/database"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

// Config has the addresses and limits of the service.
type Config struct {
	// Name is the producer's name.
	Name string
	// Coordinator is the address of msghandler.
	Coordinator string
	// Listen is where the service answers the coordinator's callbacks. Port 0 picks a free port.
	Listen string
	// CallbackTarget is how the coordinator reaches Listen. Default: Listen itself.
	CallbackTarget string
	// Coordinators says which callers may ask; the zero value: everyone, with a warning.
	Coordinators producer.Coordinators
	// Database holds the orders, their markers and their messages.
	Database *database.DB
	// AMQP is the broker, which delivers the reminders of unpaid orders.
	AMQP string
	// Exchange and RoutingKey say where paid orders are announced.
	Exchange, RoutingKey string
	// PayWithin is how long an order may stay unpaid.
	PayWithin time.Duration
	// Logger gets the background events of the SDKs.
	Logger *slog.Logger
}

// timeUp is the routing key of reminders of orders.
const timeUp = "order.time-up"

// resendAfter is when a message is sent to the coordinator again, while its marker exists: the coordinator may have
// crashed, or its Redis may have lost acknowledged writes.
const resendAfter = 5 * time.Second

// Service takes orders.
type Service struct {
	config    Config
	shop      *shop
	markers   *sqlmarker.Store
	producer  *producer.Producer
	relay     *outbox.Relay
	reminders *consumer.Consumer
	grpc      *grpc.Server

	stop    context.CancelFunc
	running sync.WaitGroup
	broken  chan error
}

// Open makes the tables where they are missing, and begins to answer the coordinator and to cancel unpaid orders.
func Open(ctx context.Context, config Config) (*Service, error) {
	s := &Service{config: config, broken: make(chan error, 2)}
	var err error
	if s.shop, err = openShop(ctx, config.Database); err != nil {
		return nil, err
	}
	s.markers, err = sqlmarker.New(sqlmarker.Config{
		DB: config.Database.DB, Dialect: config.Database.Dialect, Producer: config.Name, Resend: resendAfter,
		TxOptions: config.Database.TxOptions(),
	})
	if err != nil {
		return nil, err
	}
	if err := s.markers.Migrate(ctx); err != nil {
		return nil, err
	}
	if s.reminders, err = s.consumeReminders(); err != nil {
		return nil, err
	}
	if err := s.serve(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// serve starts the gRPC server for callbacks, with the producer registered on the server, and the background work.
func (s *Service) serve(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.config.Listen)
	if err != nil {
		return fmt.Errorf("listen for callbacks: %w", err)
	}
	target := s.config.CallbackTarget
	if target == "" {
		target = listener.Addr().String()
	}
	s.producer, err = producer.New(producer.Config{
		Name: s.config.Name, Coordinator: s.config.Coordinator, CallbackTarget: target, Markers: s.markers,
		Coordinators: s.config.Coordinators, Logger: s.config.Logger,
	})
	if err == nil {
		s.relay, err = outbox.New(outbox.Config{
			Table: s.markers, Sender: outbox.ToCoordinator(s.producer), Again: resendAfter, Interval: time.Second,
			Logger: s.config.Logger,
		})
	}
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	s.grpc = grpc.NewServer()
	s.producer.Register(s.grpc)
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.running.Go(func() { s.relay.Run(background) })
	s.running.Go(func() { s.end(s.reminders.Run(background, consumer.HandlerFunc(s.cancelUnpaid))) })
	s.running.Go(func() { s.end(s.grpc.Serve(listener)) })
	return nil
}

// end reports a part's error, which ends the service.
func (s *Service) end(err error) {
	if err != nil {
		s.broken <- err
	}
}

// Broken gets an error when the service cannot go on.
func (s *Service) Broken() <-chan error { return s.broken }

// Place stores an order, takes its items from the stock and schedules a reminder of the time limit, all or nothing.
// This is the whole pattern: Send stores the half message and runs the business in a transaction with the marker. The
// message goes out if, and only if, the transaction commits.
func (s *Service) Place(ctx context.Context, o Order) error {
	reminder, err := s.message(o.ID+":time-up", timeUp, orderTimeUp{o.ID})
	if err != nil {
		return err
	}
	reminder.Delay = s.config.PayWithin
	err = s.markers.Send(ctx, s.producer, reminder, func(ctx context.Context, tx *sql.Tx) error {
		return s.shop.place(ctx, tx, o)
	})
	return acceptRepeated(err)
}

// acceptRepeated treats the repetition of an earlier commit as a success.
func acceptRepeated(err error) error {
	if errors.Is(err, producer.ErrAlreadyCommitted) {
		return nil
	}
	return err
}

// Pay marks an order as paid and announces the order, both or neither. fail is the failure to demonstrate.
func (s *Service) Pay(ctx context.Context, id string, fail Failure) error {
	order, err := s.shop.look(ctx, id)
	if err != nil {
		return err
	}
	paid, err := s.message(id, s.config.RoutingKey, orderPaid{id, order.AmountCents, order.Items})
	if err != nil {
		return err
	}
	business := func(ctx context.Context, tx *sql.Tx) error {
		if err := fail.strike(ctx); err != nil {
			return err
		}
		return s.shop.pay(ctx, tx, id)
	}
	if fail == Silent || fail == CrashAfterCommit {
		return acceptRepeated(s.commitWithoutSubmit(ctx, paid, business, fail))
	}
	return acceptRepeated(s.markers.Send(ctx, s.producer, paid, business))
}

// commitWithoutSubmit takes the steps of Send without the Submit, as if the Submit had been lost.
func (s *Service) commitWithoutSubmit(
	ctx context.Context, m producer.Message, business sqlmarker.Business, fail Failure,
) error {
	state, err := s.producer.SendHalf(ctx, m)
	switch {
	case err != nil:
		return err
	case state == producer.StateRolledBack:
		return producer.ErrRolledBack
	case state != producer.StatePending:
		return nil
	}
	if err := s.markers.InTx(m, business)(ctx); err != nil {
		return err
	}
	if fail == CrashAfterCommit {
		return die()
	}
	return nil
}

// orderTimeUp and orderPaid are the bodies of messages.
type orderTimeUp struct {
	OrderID string `json:"order_id"`
}

type orderPaid struct {
	OrderID     string `json:"order_id"`
	AmountCents int64  `json:"amount_cents"`
	Items       []Item `json:"items"`
}

func (s *Service) message(id, routingKey string, content any) (producer.Message, error) {
	body, err := json.Marshal(content)
	if err != nil {
		return producer.Message{}, fmt.Errorf("encode message %s: %w", id, err)
	}
	return producer.Message{
		ID: id, Exchange: s.config.Exchange, RoutingKey: routingKey, ContentType: "application/json", Body: body,
	}, nil
}

// ErrDeclined is why a payment with the failure Declined fails.
var ErrDeclined = errors.New("the customer's bank declined")

// strike causes the failure within the transaction.
func (f Failure) strike(ctx context.Context) error {
	switch f {
	case Declined:
		return ErrDeclined
	case Slow:
		return backoff.Sleep(ctx, SlowFor)
	case CrashBeforeCommit:
		return die()
	}
	return nil
}

// die ends the process as a power cut would: nothing is closed or flushed.
func die() error {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("could not crash: %w", err)
	}
	select {}
}

// Look shows an order.
func (s *Service) Look(ctx context.Context, id string) (Stored, error) { return s.shop.look(ctx, id) }

// Status counts the service's orders and messages.
type Status struct {
	Unpaid, Paid, Cancelled int
	// Open is the number of messages that the coordinator has not taken over yet.
	Open int
}

// Settled says whether every order and every message has ended.
func (s Status) Settled() bool { return s.Unpaid == 0 && s.Open == 0 }

// Status counts orders and messages in the database.
func (s *Service) Status(ctx context.Context) (Status, error) {
	orders, err := s.shop.count(ctx)
	if err != nil {
		return Status{}, err
	}
	messages, err := s.markers.Counts(ctx)
	return Status{
		Unpaid: orders[Unpaid], Paid: orders[Paid], Cancelled: orders[Cancelled],
		Open: int(messages.Handed + messages.Waiting),
	}, err
}

// Close stops taking orders, waits for orders in progress, and stops answering. The database stays open.
func (s *Service) Close(ctx context.Context) error {
	err := s.producer.Close(ctx)
	s.stop()
	s.grpc.Stop()
	s.running.Wait()
	return err
}
