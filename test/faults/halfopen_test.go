package faults

import (
	"context"
	"math/rand/v2"
	"time"
)

// Connections to RabbitMQ that die without a report.
var halfOpenRows = []row{
	{name: "F32", copies: true, world: options{wired: true}, fault: fallSilent, judge: felt("unsure")},
}

// fallSilent makes the coordinators' connections swallow everything and stay open, until all have found out.
func fallSilent(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	w.ledger.Fault("the connections with RabbitMQ fall silent")
	began := time.Now()
	for _, c := range w.coordinators {
		c.amqp.Silence()
	}
	w.degraded("not connected")
	took := time.Since(began)
	w.ledger.Fault("all coordinators have found out; new connections work")
	w.t.Logf("found out after %v", took.Round(10*time.Millisecond))
	for _, c := range w.coordinators {
		c.amqp.Restore()
		c.amqp.Disconnect() // connections made meanwhile have swallowed their greeting
	}
	w.allReady()
}
