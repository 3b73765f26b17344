// Package adapter has what the consumers of the brokers are made of. Programs import the consumer of their broker.
package adapter

import (
	"context"
	"time"
)

// CancelGrace is how long handlers get to return after their context has ended.
const CancelGrace = 2 * time.Second

// Decided is the context in which a consumer carries out what a handler has decided. When the context of the handlers
// has ended, Decided leaves CancelGrace: a rejection is the handler's decision also then.
func Decided(work context.Context) (context.Context, context.CancelFunc) {
	if work.Err() == nil {
		return context.WithCancel(work)
	}
	return context.WithTimeout(context.WithoutCancel(work), CancelGrace)
}
