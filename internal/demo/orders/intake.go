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

// Tally counts what became of orders, while they are being placed.
type Tally struct {
	Placed, RolledBack, Failed atomic.Int64
}

// String says it in one line.
func (t *Tally) String() string {
	return fmt.Sprintf("%d placed, %d rolled back, %d failed", t.Placed.Load(), t.RolledBack.Load(), t.Failed.Load())
}

func (t *Tally) count(err error) {
	switch {
	case err == nil:
		t.Placed.Add(1)
	case errors.Is(err, ErrDeclined), errors.Is(err, producer.ErrRolledBack):
		t.RolledBack.Add(1)
	default:
		t.Failed.Add(1)
	}
}

// PlaceAll places the orders that r holds, one JSON object a line, parallel at a time. A line that is no order ends it;
// an order that fails does not: it is counted and reported to failed, which may be called concurrently.
func (s *Service) PlaceAll(ctx context.Context, r io.Reader, parallel int, tally *Tally, failed func(Order, error)) error {
	orders := make(chan Order)
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for o := range orders {
				err := s.Place(ctx, o)
				tally.count(err)
				if err != nil {
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

// Handler takes orders over HTTP: POST /orders with an order as JSON. 201: placed; 400: not an order; 409: rolled back;
// 503: try again.
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
		if err := s.Place(r.Context(), order); err != nil {
			http.Error(w, err.Error(), status(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(order) // the client left; the order stands
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%d orders, %d to be confirmed\n", s.Committed(), s.Open())
	})
	return mux
}

func status(err error) int {
	switch {
	case errors.Is(err, ErrDeclined), errors.Is(err, producer.ErrRolledBack), errors.Is(err, producer.ErrExists):
		return http.StatusConflict
	case errors.Is(err, producer.ErrRejected):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}
