// Package orders takes the orders of the demos' shop and announces them; it is written to be read: start with Place.
//
// A buyer places an order, pays, and confirms the receipt. Each step is a transaction in the shop's database (package
// shop). Each announcement is a message that goes out if, and only if, its transaction commits: through the
// coordinator, or without a coordinator straight from the outbox table to the broker.
package orders

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqoutbox"
	"github.com/msghandler/msghandler/consumer/envelope"
	"github.com/msghandler/msghandler/dev/demo/shop"
	"github.com/msghandler/msghandler/examples/database"
	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

// Config has the addresses and limits of the service.
type Config struct {
	// Coordinator is the address of msghandler. Empty: the outbox publishes to AMQP itself, without a coordinator.
	Coordinator string
	// TLS is how the coordinator is talked to with TLS; nil: nothing is encrypted. TokenFile has the token to show the
	// coordinator; empty: none.
	TLS       *tls.Config
	TokenFile string
	// Listen is where the service answers the coordinator's callbacks. Port 0 picks a free port. Empty: the service
	// attends, and serves no port.
	Listen string
	// HTTPCallbacks serves the callbacks by HTTP. Default: by gRPC.
	HTTPCallbacks bool
	// Coordinators says which callers may ask at Listen, and must be given with it.
	Coordinators producer.Coordinators
	// Database holds the shop, its markers and its messages.
	Database *database.DB
	// Products is how many products are on sale at first.
	Products int
	// AMQP is the broker, on which the shop's topology is declared.
	AMQP string
	// PayWithin is how long an order may stay unpaid, and Retries the delays after a consumer's failure. Both are part of
	// the topology, and must be the same at the consumers.
	PayWithin time.Duration
	Retries   []time.Duration
	// SweepEvery is how often the sweep cancels overdue orders whose ORDER_TIMEOUT was lost. Default: 30 s.
	SweepEvery time.Duration
	// Backoff are the three delays after the broker has refused a message of the outbox; after the last the message has
	// failed. Default: exactly 5 s, 30 s, 2 min.
	Backoff []time.Duration
	// Logger gets the background events of the SDKs.
	Logger *slog.Logger
}

// resendAfter is when a message is sent to the coordinator again, while its marker exists: the coordinator may have
// crashed, or its Redis may have lost acknowledged writes.
const resendAfter = 5 * time.Second

// relayEvery is how often the relay looks for messages that the consumers' process has committed.
const relayEvery = 500 * time.Millisecond

// Service takes orders.
type Service struct {
	config      Config
	shop        *shop.Shop
	markers     *sqlmarker.Store
	producer    *producer.Producer // nil without a coordinator
	relay       *outbox.Relay
	direct      *rabbitmqoutbox.Sender // nil with a coordinator
	stopServing func()                 // nil without a coordinator

	stop    context.CancelFunc
	running sync.WaitGroup
	broken  chan error
}

// Open makes the tables where they are missing, declares the topology, and begins to answer the coordinator, to send
// what the outbox holds, and to sweep.
func Open(ctx context.Context, config Config) (*Service, error) {
	if config.SweepEvery == 0 {
		config.SweepEvery = 30 * time.Second
	}
	s := &Service{config: config, broken: make(chan error, 2)}
	var err error
	if s.shop, err = shop.Open(ctx, config.Database, config.Products); err != nil {
		return nil, err
	}
	s.markers, err = sqlmarker.New(sqlmarker.Config{
		DB: config.Database.DB, Dialect: config.Database.Dialect, Producer: shop.Producer, Resend: resendAfter,
		TxOptions: config.Database.TxOptions(),
	})
	if err != nil {
		return nil, err
	}
	if err := s.markers.Migrate(ctx); err != nil {
		return nil, err
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	if err := errors.Join(s.declare(ctx, background), s.connect(ctx)); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	s.running.Go(func() { s.relay.Run(background) })
	s.running.Go(func() { s.sweep(background) })
	return s, nil
}

// connect makes the way of messages to the broker: through the coordinator, or from the outbox alone.
func (s *Service) connect(ctx context.Context) (err error) {
	to := outbox.Sender(nil)
	if s.config.Coordinator == "" {
		s.direct, err = rabbitmqoutbox.New(rabbitmqoutbox.Config{URL: s.config.AMQP, Producer: shop.Producer})
		to = s.direct
	} else if err = s.serve(ctx); err == nil {
		to = outbox.ToCoordinator(s.producer)
	}
	if err != nil {
		return err
	}
	s.relay, err = outbox.New(outbox.Config{
		Table: s.markers, Sender: to, Again: resendAfter, Interval: relayEvery, Retries: outbox.RetriesThree,
		Backoff: s.config.Backoff, Logger: s.config.Logger,
	})
	return err
}

// serve opens the producer. It attends, or answers the coordinator's callbacks on a gRPC server.
func (s *Service) serve(ctx context.Context) (err error) {
	config := producer.Config{
		Name: shop.Producer, Coordinator: s.config.Coordinator, Markers: s.markers,
		TLS: s.config.TLS, TokenFile: s.config.TokenFile,
		Coordinators: s.config.Coordinators, Logger: s.config.Logger,
	}
	if s.config.Listen == "" {
		s.producer, err = producer.New(config)
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.config.Listen)
	if err != nil {
		return fmt.Errorf("listen for callbacks: %w", err)
	}
	config.CallbackTarget = listener.Addr().String()
	if s.config.HTTPCallbacks {
		config.CallbackTarget = "http://" + config.CallbackTarget
	}
	if s.producer, err = producer.New(config); err != nil {
		return errors.Join(err, listener.Close())
	}
	if s.config.HTTPCallbacks {
		server := &http.Server{Handler: s.producer.HTTPHandler(), ReadTimeout: time.Minute}
		s.stopServing = func() { _ = server.Close() } // closes the listener; the calls that it ends are asked again
		s.running.Go(func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				s.end(err)
			}
		})
		return nil
	}
	server := grpc.NewServer()
	s.producer.Register(server)
	s.stopServing = server.Stop
	s.running.Go(func() { s.end(server.Serve(listener)) })
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

// Place stores an order, takes its product from sale, and announces ORDER_CREATED, all or nothing. ORDER_TIMEOUT waits
// at the broker until the time to pay is over. Place of an order that exists changes nothing.
func (s *Service) Place(ctx context.Context, o Order) error {
	ctx = shop.WithTrace(ctx, "")
	if _, err := s.shop.Look(ctx, o.ID); !errors.Is(err, shop.ErrNoOrder) {
		return err
	}
	product, err := s.shop.Product(ctx, o.Product)
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	order := shop.Order{
		ID: o.ID, OrderNo: shop.OrderNo(o.ID), BuyerID: o.Buyer, ProductID: o.Product, Quantity: 1, Price: product.Price,
		CreateTime: now,
	}
	created := announcement[shop.OrderCreated]{
		shop.Created, shop.KeyCreated, fmt.Sprintf("%d-created", o.ID), now, shop.OrderCreated{
			OrderID: o.ID, OrderNo: order.OrderNo, BuyerID: o.Buyer, SellerID: product.SellerID, ProductID: o.Product,
			Quantity: order.Quantity, Price: order.Price,
		},
	}
	timeout, err := announcement[shop.OrderTimeout]{
		shop.TimedOut, shop.KeyTimeoutDelay, fmt.Sprintf("%d-timeout", o.ID), now,
		shop.OrderTimeout{OrderID: o.ID, OrderNo: order.OrderNo, CreateTime: now},
	}.message(ctx, "")
	if err != nil {
		return err
	}
	return send(ctx, s, created, NoFailure, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.markers.Enqueue(ctx, tx, timeout); err != nil {
			return err
		}
		return s.shop.Place(ctx, tx, order)
	})
}

// Pay marks an order as paid and announces ORDER_PAID, both or neither. fail is the failure to demonstrate. Pay of an
// order that was paid changes nothing.
func (s *Service) Pay(ctx context.Context, id int64, fail Failure) error {
	ctx = shop.WithTrace(ctx, "")
	o, err := s.shop.Look(ctx, id)
	if err != nil || o.PayTime != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	paid := announcement[shop.OrderPaid]{
		shop.PaidEvent, shop.KeyPaid, fmt.Sprintf("%d-paid", id), now,
		shop.OrderPaid{OrderID: id, OrderNo: o.OrderNo, PayTime: now, Amount: o.Price * o.Quantity},
	}
	return send(ctx, s, paid, fail, func(ctx context.Context, tx *sql.Tx) error {
		if err := fail.strike(); err != nil {
			return err
		}
		return s.shop.Pay(ctx, tx, id, now)
	})
}

// Complete moves a shipped order to completed, when its buyer has the product, and announces ORDER_STATUS_CHANGED.
func (s *Service) Complete(ctx context.Context, id int64) error {
	ctx = shop.WithTrace(ctx, "")
	o, err := s.shop.Look(ctx, id)
	if err != nil || o.Status == shop.Completed {
		return err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	changed := announcement[shop.OrderStatusChanged]{
		shop.Changed, shop.KeyChanged, fmt.Sprintf("%d-completed", id), now, shop.OrderStatusChanged{
			OrderID: id, OrderNo: o.OrderNo, OldStatus: shop.Shipped, NewStatus: shop.Completed, ChangedAt: now,
		},
	}
	return send(ctx, s, changed, NoFailure, func(ctx context.Context, tx *sql.Tx) error {
		return s.shop.Advance(ctx, tx, id, shop.Shipped, shop.Completed)
	})
}

// CompleteShipped completes shipped orders, a batch at most and all at once, as if their buyers had confirmed the
// receipt.
func (s *Service) CompleteShipped(ctx context.Context, batch int) error {
	ids, err := s.shop.WithStatus(ctx, shop.Shipped, batch)
	if err != nil {
		return err
	}
	var buyers sync.WaitGroup
	errs := make([]error, len(ids))
	for i, id := range ids {
		buyers.Go(func() { errs[i] = s.Complete(ctx, id) })
	}
	buyers.Wait()
	return errors.Join(errs...)
}

// Cancel cancels an unpaid order for its buyer. No event says so: the order's ORDER_TIMEOUT will find it cancelled.
func (s *Service) Cancel(ctx context.Context, id int64) error {
	o, err := s.shop.Look(ctx, id)
	if err != nil || o.Status == shop.Cancelled {
		return err
	}
	return s.shop.InTx(ctx, func(tx *sql.Tx) error { return s.shop.Cancel(ctx, tx, id) })
}

// Status counts the service's orders and messages.
type Status struct {
	Pending, Paid, Shipped, Completed, Cancelled int
	// Open is the number of messages that the coordinator or the broker has not taken over yet.
	Open int
}

// Placed is the number of all orders.
func (s Status) Placed() int { return s.Pending + s.Paid + s.Shipped + s.Completed + s.Cancelled }

// Settled says whether every order is shipped or cancelled and every message has left, also those of the consumers.
func (s Status) Settled() bool { return s.Pending == 0 && s.Paid == 0 && s.Open == 0 }

// Status counts orders and messages in the database.
func (s *Service) Status(ctx context.Context) (Status, error) {
	orders, err := s.shop.Counts(ctx)
	if err != nil {
		return Status{}, err
	}
	messages, err := s.markers.Counts(ctx)
	return Status{
		Pending: orders[shop.Pending], Paid: orders[shop.Paid], Shipped: orders[shop.Shipped],
		Completed: orders[shop.Completed], Cancelled: orders[shop.Cancelled],
		Open: int(messages.Handed + messages.Waiting),
	}, err
}

// Close stops taking orders, waits for orders in progress, and stops answering. The database stays open.
func (s *Service) Close(ctx context.Context) (err error) {
	if s.producer != nil {
		err = s.producer.Close(ctx)
	}
	s.stop()
	if s.stopServing != nil {
		s.stopServing()
	}
	s.running.Wait()
	if s.direct != nil {
		s.direct.Close()
	}
	return err
}

// announcement is an event that is to be announced.
type announcement[P any] struct {
	kind    envelope.Type[P]
	key, id string
	at      time.Time
	payload P
}

// message is the message of the announcement, in the context's trace. The suffix tells a second attempt from the first.
func (a announcement[P]) message(ctx context.Context, suffix string) (producer.Message, error) {
	id := a.id + suffix
	body, err := a.kind.Marshal(envelope.Head{ID: id, OccurredAt: a.at, TraceID: shop.TraceID(ctx)}, a.payload)
	return producer.Message{
		ID: id, Exchange: shop.Exchange, RoutingKey: a.key, ContentType: envelope.ContentType, Body: body,
		Headers: map[string]string{shop.Header: shop.Traceparent(ctx)},
	}, err
}
