package orders

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/msghandler/msghandler/producer"
)

// Tally counts orders by outcome, while they are placed and paid.
type Tally struct {
	Placed, OutOfStock, Paid, Unpaid, Failed atomic.Int64
}

// String is a line of all counts.
func (t *Tally) String() string {
	return fmt.Sprintf("%d placed, %d out of stock; %d paid, %d not paid, %d failed",
		t.Placed.Load(), t.OutOfStock.Load(), t.Paid.Load(), t.Unpaid.Load(), t.Failed.Load())
}

// PlaceAll places and pays the orders in r, one JSON object a line, parallel at a time. A malformed line ends PlaceAll.
// A failed order is counted and reported to failed, which may be called concurrently.
func (s *Service) PlaceAll(
	ctx context.Context, r io.Reader, parallel int, tally *Tally, failed func(Order, error),
) error {
	orders := make(chan Order)
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for o := range orders {
				if err := s.placeAndPay(ctx, o, tally); err != nil {
					failed(o, err)
				}
			}
		})
	}
	err := feed(ctx, r, orders)
	close(orders)
	workers.Wait()
	return err
}

// placeAndPay plays a customer. An order that is out of stock, or stays unpaid, is no error.
func (s *Service) placeAndPay(ctx context.Context, o Order, tally *Tally) error {
	err := s.Place(ctx, o)
	switch {
	case errors.Is(err, ErrOutOfStock), errors.Is(err, producer.ErrRolledBack):
		tally.OutOfStock.Add(1)
		return nil
	case err != nil:
		tally.Failed.Add(1)
		return err
	}
	tally.Placed.Add(1)
	if o.Unpaid {
		tally.Unpaid.Add(1)
		return nil
	}
	err = s.Pay(ctx, o.ID, o.Fail)
	switch {
	case err == nil:
		tally.Paid.Add(1)
	case errors.Is(err, ErrDeclined), errors.Is(err, ErrNotUnpaid), errors.Is(err, producer.ErrRolledBack):
		tally.Unpaid.Add(1)
	default:
		tally.Failed.Add(1)
		return err
	}
	return nil
}

func feed(ctx context.Context, r io.Reader, orders chan<- Order) error {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		order, err := parse(line)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		select {
		case orders <- order:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return lines.Err()
}

// Handler takes orders over HTTP: POST /orders with an order as JSON places an order, POST /orders/ID/payment pays the
// order, GET /orders/ID shows the order. 201: done; 400: not an order; 404: no such order; 409: out of stock, declined,
// or too late; 503: try again.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		order, err := parse(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.answer(w, r, order.ID, http.StatusCreated, s.Place(r.Context(), order))
	})
	mux.HandleFunc("POST /orders/{id}/payment", func(w http.ResponseWriter, r *http.Request) {
		id, fail := r.PathValue("id"), Failure(r.URL.Query().Get("fail"))
		if err := fail.check(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.answer(w, r, id, http.StatusCreated, s.Pay(r.Context(), id, fail))
	})
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, r.PathValue("id"), http.StatusOK, nil)
	})
	return mux
}

// answer writes the order or the error.
func (s *Service) answer(w http.ResponseWriter, r *http.Request, id string, done int, err error) {
	var order Stored
	if err == nil {
		order, err = s.shop.look(r.Context(), id)
	}
	if err != nil {
		http.Error(w, err.Error(), status(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(done)
	_ = json.NewEncoder(w).Encode(order) // the client left; the order is stored
}

func status(err error) int {
	for _, e := range []error{ErrOutOfStock, ErrDeclined, ErrNotUnpaid, producer.ErrRolledBack, producer.ErrExists} {
		if errors.Is(err, e) {
			return http.StatusConflict
		}
	}
	switch {
	case errors.Is(err, ErrNoOrder):
		return http.StatusNotFound
	case errors.Is(err, producer.ErrRejected):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}
