package faults

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"
)

// What happens to coordinators.
var coordinatorRows = []row{
	{name: "F04", fault: rollCoordinators},
	{name: "F16", copies: true, fault: stopOwner},
}

func rollCoordinators(ctx context.Context, w *world, _ *rand.Rand) {
	for _, c := range w.coordinators {
		pause(ctx, time.Second)
		w.ledger.Fault("SIGTERM to " + c.grpc)
		if err := w.end(c, syscall.SIGTERM); err != nil {
			w.t.Errorf("a coordinator that was asked to stop: %v", err)
		}
		w.start(c)
		w.ready(c)
		w.ledger.Fault("ready again: " + c.grpc)
	}
}

// stopOwner stops one for more than its leases, which another takes over, and lets it go on.
func stopOwner(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	c := w.coordinators[0]
	w.ledger.Fault("SIGSTOP to " + c.grpc)
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		w.t.Fatal(err)
	}
	wait(20 * time.Second)
	w.ledger.Fault("SIGCONT to " + c.grpc)
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		w.t.Fatal(err)
	}
	w.ready(c)
}
