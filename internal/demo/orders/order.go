package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Order is a customer's purchase.
type Order struct {
	ID    string `json:"id"`
	Items []Item `json:"items"`
	// Unpaid means that the customer never pays; the order is cancelled after the time limit.
	Unpaid bool `json:"unpaid,omitempty"`
	// Fail is the failure of the payment; empty: the payment succeeds.
	Fail Failure `json:"fail,omitempty"`
}

// Item is some pieces of an article.
type Item struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// Failure is a way in which a payment fails.
type Failure string

// The ways to fail. The crashes kill the whole process, as a power cut would.
const (
	NoFailure         Failure = ""
	Declined          Failure = "declined"            // the transaction fails; the order stays unpaid
	Silent            Failure = "silent"              // commits, and never submits
	Slow              Failure = "slow"                // waits SlowFor before the commit
	CrashBeforeCommit Failure = "crash_before_commit" // the half message is stored, the payment is not
	CrashAfterCommit  Failure = "crash_after_commit"  // the payment is stored with its marker, without a Submit
)

var failures = []Failure{NoFailure, Declined, Silent, Slow, CrashBeforeCommit, CrashAfterCommit}

// SlowFor is how long a slow payment takes.
const SlowFor = 3 * time.Second

// mostPieces is the limit for an article in an order.
const mostPieces = 1000

// parse reads and checks an order.
func parse(line []byte) (Order, error) {
	var o Order
	if err := json.Unmarshal(line, &o); err != nil {
		return Order{}, fmt.Errorf(
			`not an order, which looks like {"id":"1001","items":[{"sku":"tea","quantity":2}]}: %w`, err)
	}
	if o.ID == "" {
		return Order{}, errors.New("the order has no id")
	}
	if err := o.check(); err != nil {
		return Order{}, fmt.Errorf("order %s: %w", o.ID, err)
	}
	return o, nil
}

func (o Order) check() error {
	if len(o.Items) == 0 {
		return errors.New("no items")
	}
	seen := map[string]bool{}
	for _, item := range o.Items {
		if item.Quantity < 1 || item.Quantity > mostPieces {
			return fmt.Errorf("the quantity of %q is %d; it must be between 1 and %d", item.SKU, item.Quantity, mostPieces)
		}
		if seen[item.SKU] {
			return fmt.Errorf("%q occurs twice", item.SKU)
		}
		seen[item.SKU] = true
	}
	return o.Fail.check()
}

func (f Failure) check() error {
	if !slices.Contains(failures, f) {
		return fmt.Errorf("unknown fail %q; there are %q", f, failures[1:])
	}
	return nil
}
