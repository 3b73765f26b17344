// Package orders is an order service that uses the producer SDK, written to be read: start with Place.
//
// Its database is a ledger, a file of committed orders. Each order that commits is announced to the rest of the world as a
// message; how that goes right although processes die and calls are lost is what the package shows.
package orders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/internal/backoff"
	"github.com/msghandler/msghandler/internal/demo/ledger"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
)

// Config says where the service lives.
type Config struct {
	// Name is the producer's name. Default: orders.
	Name string
	// Coordinator is the address of msghandler.
	Coordinator string
	// Listen is where the service answers the coordinator's questions. Port 0 picks a free one.
	Listen string
	// CallbackTarget is how the coordinator reaches Listen. Default: Listen itself.
	CallbackTarget string
	// Dir holds the ledger, orders.jsonl.
	Dir string
	// Markers keeps the notes of what committed.
	Markers marker.Store
	// Exchange and RoutingKey say where orders are announced.
	Exchange, RoutingKey string
	// Logger gets what the SDK does in the background.
	Logger *slog.Logger
}

// Service takes orders.
type Service struct {
	config   Config
	ledger   *ledger.Ledger
	producer *producer.Producer
	grpc     *grpc.Server
	markers  *openMarkers
	served   chan error

	mu      sync.Mutex
	refused map[string]bool // orders that were declared rolled back and must never commit
}

// New opens the ledger and begins to answer the coordinator.
func New(config Config) (*Service, error) {
	book, err := ledger.Open(filepath.Join(config.Dir, "orders.jsonl"))
	if err != nil {
		return nil, err
	}
	s := &Service{
		config: config, ledger: book, markers: &openMarkers{Store: config.Markers, open: map[string]bool{}},
		served: make(chan error, 1), refused: map[string]bool{},
	}
	if err := s.serve(); err != nil {
		return nil, errors.Join(err, book.Close())
	}
	return s, nil
}

// serve starts the gRPC server that the coordinator calls back, with the producer registered on it.
func (s *Service) serve() error {
	listener, err := net.Listen("tcp", s.config.Listen)
	if err != nil {
		return fmt.Errorf("listen for callbacks: %w", err)
	}
	target := s.config.CallbackTarget
	if target == "" {
		target = listener.Addr().String()
	}
	s.producer, err = producer.New(producer.Config{
		Name:           s.config.Name,
		Coordinator:    s.config.Coordinator,
		CallbackTarget: target,
		Markers:        s.markers,
		Resolve:        s.resolve,
		Logger:         s.config.Logger,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	s.grpc = grpc.NewServer()
	s.producer.Register(s.grpc)
	go func() { s.served <- s.grpc.Serve(listener) }()
	return nil
}

// Place stores an order and announces it, both or neither. This is the whole pattern: Send stores the half message, runs
// the function, and sees to it that the message goes out if, and only if, the function committed.
func (s *Service) Place(ctx context.Context, o Order) error {
	message, err := s.message(o)
	if err != nil {
		return err
	}
	if o.Fail == Silent || o.Fail == CrashBeforeSubmit {
		return s.placeAndSayNothing(ctx, message, o)
	}
	err = s.producer.Send(ctx, message, func(ctx context.Context) error { return s.commit(ctx, o) })
	if errors.Is(err, producer.ErrAlreadyCommitted) {
		return nil
	}
	return err
}

func (s *Service) message(o Order) (producer.Message, error) {
	body, err := json.Marshal(struct {
		OrderID     string `json:"order_id"`
		AmountCents int64  `json:"amount_cents"`
	}{o.ID, o.AmountCents})
	if err != nil {
		return producer.Message{}, fmt.Errorf("encode order %s: %w", o.ID, err)
	}
	return producer.Message{
		ID: o.ID, Exchange: s.config.Exchange, RoutingKey: s.config.RoutingKey,
		ContentType: "application/json", Body: body,
	}, nil
}

// ErrDeclined is why an order with the failure Rollback fails.
var ErrDeclined = errors.New("the customer's bank declined")

// commit is the business: one local transaction.
func (s *Service) commit(ctx context.Context, o Order) error {
	switch o.Fail {
	case Rollback:
		return ErrDeclined
	case Slow:
		if err := backoff.Sleep(ctx, SlowFor); err != nil {
			return fmt.Errorf("%w: %w", producer.ErrNotCommitted, err)
		}
	case CrashBeforeCommit:
		return die()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused[o.ID] {
		return errors.New("the order took too long and was declared rolled back")
	}
	err := s.ledger.Append(ledger.Entry{ID: o.ID, AmountCents: o.AmountCents, At: time.Now().UTC()})
	if err != nil && !errors.Is(err, ledger.ErrExists) { // it exists when an earlier run committed it and then died
		return producer.Unsure(err)
	}
	if o.Fail == CrashAfterCommit {
		return die()
	}
	return nil
}

// resolve answers for orders that have no marker, by looking at the ledger. Only the final question may be answered with
// RolledBack, and only together with making sure that it stays true.
func (s *Service) resolve(_ context.Context, id string, final bool) (marker.Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ledger.Has(id) {
		return marker.Committed, nil
	}
	if final {
		s.refused[id] = true
		return marker.RolledBack, nil
	}
	return marker.Unknown, nil
}

// placeAndSayNothing goes the same way step by step, and leaves out the Submit: as if it had been lost.
func (s *Service) placeAndSayNothing(ctx context.Context, m producer.Message, o Order) error {
	state, err := s.producer.SendHalf(ctx, m)
	if err != nil || state != producer.StatePending {
		return err
	}
	if err := s.commit(ctx, o); err != nil {
		return err
	}
	if _, err := s.markers.Put(ctx, []string{o.ID}, marker.Committed); err != nil {
		return fmt.Errorf("mark order %s: %w", o.ID, err)
	}
	if o.Fail == CrashBeforeSubmit {
		return die()
	}
	return nil
}

// die ends the process as a power cut would: nothing is closed, flushed or said.
func die() error {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("could not crash: %w", err)
	}
	select {}
}

// Open is how many markers the coordinator has not deleted yet: orders whose fate it does not know so far.
func (s *Service) Open() int { return s.markers.count() }

// Settle asks the coordinator about the orders whose markers are open, and drops the markers of those whose fate it has
// stored: a coordinator that died at the wrong moment never told. It returns how many are still open.
func (s *Service) Settle(ctx context.Context) (open int, err error) {
	var stored []string
	for _, id := range s.markers.ids() {
		known, err := s.known(ctx, id)
		if err != nil {
			return s.Open(), err
		}
		if known {
			stored = append(stored, id)
		}
	}
	err = s.markers.Delete(ctx, stored)
	return s.Open(), err
}

// known says whether the coordinator has stored the fate of an order, and tells it that fate.
func (s *Service) known(ctx context.Context, id string) (bool, error) {
	if !s.ledger.Has(id) {
		// Its marker says rolled back. The answer to that Rollback may have been lost, and then nobody would ask.
		err := s.producer.Rollback(ctx, id, "rolled back")
		if err == nil || errors.Is(err, producer.ErrNotFound) {
			return true, nil
		}
		return false, err
	}
	state, err := s.producer.Submit(ctx, id)
	if errors.Is(err, producer.ErrNotFound) {
		return true, nil
	}
	return state == producer.StateSendable || state == producer.StateDone, err
}

// Committed is how many orders the ledger holds.
func (s *Service) Committed() int { return s.ledger.Len() }

// Close stops taking orders, waits for the submits that are under way, and stops answering.
func (s *Service) Close(ctx context.Context) error {
	err := s.producer.Close(ctx)
	s.grpc.Stop()
	return errors.Join(err, <-s.served, s.ledger.Close())
}
