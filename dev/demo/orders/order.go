package orders

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Order is what a buyer orders.
type Order struct {
	ID      int64 `json:"id"`
	Buyer   int64 `json:"buyer"`
	Product int64 `json:"product"`
	// Unpaid means that the buyer never pays; the order is cancelled after the time limit.
	Unpaid bool `json:"unpaid,omitempty"`
	// Cancel means that the buyer cancels the order at once.
	Cancel bool `json:"cancel,omitempty"`
	// Fail is the failure of the payment; empty: the payment succeeds.
	Fail Failure `json:"fail,omitempty"`
}

// Failure is a way in which a payment fails.
type Failure string

// The ways to fail. The crashes kill the whole process, as a power cut would.
const (
	NoFailure         Failure = ""
	Declined          Failure = "declined"            // the transaction fails; the order stays pending
	Silent            Failure = "silent"              // commits, and never submits
	CrashBeforeCommit Failure = "crash_before_commit" // the half message is stored, the payment is not
	CrashAfterCommit  Failure = "crash_after_commit"  // the payment is stored with its marker, without a Submit
)

var failures = []Failure{NoFailure, Declined, Silent, CrashBeforeCommit, CrashAfterCommit}

// parse reads and checks an order.
func parse(line []byte) (Order, error) {
	var o Order
	if err := json.Unmarshal(line, &o); err != nil {
		return Order{}, fmt.Errorf(`not an order, which looks like {"id":1001,"buyer":7,"product":42}: %w`, err)
	}
	for name, n := range map[string]int64{"id": o.ID, "buyer": o.Buyer, "product": o.Product} {
		if n < 1 {
			return Order{}, fmt.Errorf("order %d has no %s, which is a number above 0", o.ID, name)
		}
	}
	if err := o.Fail.check(); err != nil {
		return Order{}, fmt.Errorf("order %d: %w", o.ID, err)
	}
	return o, nil
}

func (f Failure) check() error {
	if !slices.Contains(failures, f) {
		return fmt.Errorf("unknown fail %q; there are %q", f, failures[1:])
	}
	return nil
}
