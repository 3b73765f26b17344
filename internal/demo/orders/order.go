package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Order is what a customer buys. Its ID is the message's id.
type Order struct {
	ID          string `json:"id"`
	AmountCents int64  `json:"amount_cents"`
	// Fail makes the service fail with this order in an interesting way; empty is an order as orders should be.
	Fail Failure `json:"fail,omitempty"`
}

// Failure is a way to fail.
type Failure string

// The ways to fail. The crashes kill the whole process, as a power cut would.
const (
	NoFailure         Failure = ""
	Rollback          Failure = "rollback"            // the transaction fails
	Silent            Failure = "silent"              // commits, and never submits
	Slow              Failure = "slow"                // takes SlowFor before it commits
	CrashBeforeCommit Failure = "crash_before_commit" // the half message is stored, the order is not
	CrashAfterCommit  Failure = "crash_after_commit"  // the order is stored, its marker is not
	CrashBeforeSubmit Failure = "crash_before_submit" // order and marker are stored, nobody was told
)

var failures = []Failure{NoFailure, Rollback, Silent, Slow, CrashBeforeCommit, CrashAfterCommit, CrashBeforeSubmit}

// SlowFor is how long a slow order takes.
const SlowFor = 3 * time.Second

// parse reads an order and says what is wrong with it.
func parse(line []byte) (Order, error) {
	var o Order
	if err := json.Unmarshal(line, &o); err != nil {
		return Order{}, fmt.Errorf(`not an order, which looks like {"id":"1001","amount_cents":1999}: %w`, err)
	}
	switch {
	case o.ID == "":
		return Order{}, errors.New("the order has no id")
	case o.AmountCents <= 0:
		return Order{}, fmt.Errorf("order %s: amount_cents is %d; it must be above 0", o.ID, o.AmountCents)
	case !slices.Contains(failures, o.Fail):
		return Order{}, fmt.Errorf("order %s: unknown fail %q; there are %q", o.ID, o.Fail, failures[1:])
	}
	return o, nil
}
