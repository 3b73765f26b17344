package orders

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/msghandler/msghandler/dev/demo/shop"
)

// Tally counts orders by outcome, while they are placed and paid.
type Tally struct {
	Placed, TooLate, Paid, Unpaid, Failed atomic.Int64
}

// String is a line of all counts.
func (t *Tally) String() string {
	return fmt.Sprintf("%d placed, %d for a product that was sold; %d paid, %d not paid, %d failed",
		t.Placed.Load(), t.TooLate.Load(), t.Paid.Load(), t.Unpaid.Load(), t.Failed.Load())
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

// placeAndPay plays a buyer. An order that comes too late for its product, or stays unpaid, is no error.
func (s *Service) placeAndPay(ctx context.Context, o Order, tally *Tally) error {
	err := s.Place(ctx, o)
	switch {
	case errors.Is(err, shop.ErrSold):
		tally.TooLate.Add(1)
		return nil
	case err != nil:
		tally.Failed.Add(1)
		return err
	}
	tally.Placed.Add(1)
	if o.Unpaid || o.Cancel {
		tally.Unpaid.Add(1)
	}
	switch {
	case o.Cancel:
		return s.Cancel(ctx, o.ID)
	case o.Unpaid:
		return nil
	}
	err = s.Pay(ctx, o.ID, o.Fail)
	switch {
	case err == nil:
		tally.Paid.Add(1)
	case errors.Is(err, ErrDeclined), errors.Is(err, shop.ErrStatus):
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
