package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Order is what a customer buys.
type Order struct {
	ID    string `json:"id"`
	Items []Item `json:"items"`
	// Unpaid is an order that nobody pays; it is cancelled when its time is up.
	Unpaid bool `json:"unpaid,omitempty"`
	// Fail makes the payment fail in an interesting way; empty is a payment as payments should be.
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
	Slow              Failure = "slow"                // takes SlowFor before it commits
	CrashBeforeCommit Failure = "crash_before_commit" // the half message is stored, the payment is not
	CrashAfterCommit  Failure = "crash_after_commit"  // the payment is stored with its marker, nobody was told
)

var failures = []Failure{NoFailure, Declined, Silent, Slow, CrashBeforeCommit, CrashAfterCommit}

// SlowFor is how long a slow payment takes.
const SlowFor = 3 * time.Second

// mostPieces is how many of an article one order may have.
const mostPieces = 1000

// parse reads an order and says what is wrong with it.
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
		return errors.New("it has no items")
	}
	seen := map[string]bool{}
	for _, item := range o.Items {
		if item.Quantity < 1 || item.Quantity > mostPieces {
			return fmt.Errorf("the quantity of %q is %d; it must be between 1 and %d", item.SKU, item.Quantity, mostPieces)
		}
		if seen[item.SKU] {
			return fmt.Errorf("%q is there twice", item.SKU)
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
