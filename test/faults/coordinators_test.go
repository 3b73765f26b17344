package faults

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// Faults of coordinators.
var coordinatorRows = []row{
	{name: "F04", lasting: true, fault: rollUnderLoad},
	{name: "F16", copies: true, world: options{wired: true}, fault: stopBeforeAck, judge: sentAgain},
}

// rollUnderLoad restarts one coordinator after the other while messages come.
func rollUnderLoad(ctx context.Context, w *world, _ *rand.Rand) {
	for _, c := range w.coordinators {
		pause(ctx, time.Second)
		before, _, _ := w.ledger.Totals()
		w.restart(c)
		after, _, _ := w.ledger.Totals()
		if w.t.Logf("%d ids came while a coordinator was restarted", after-before); after == before {
			w.t.Error("nothing came while a coordinator was restarted: the row proves nothing")
		}
	}
}

func rollCoordinators(ctx context.Context, w *world, _ *rand.Rand) {
	for _, c := range w.coordinators {
		pause(ctx, time.Second)
		w.restart(c)
	}
}

// restart asks a coordinator to stop, and starts the coordinator again.
func (w *world) restart(c *coordinator) {
	w.t.Helper()
	w.ledger.Fault("SIGTERM to " + c.grpc)
	if err := w.end(c, syscall.SIGTERM); err != nil {
		w.t.Errorf("a coordinator asked to stop: %v", err)
	}
	w.start(c)
	c.Ready(c.http)
	w.ledger.Fault("ready again: " + c.grpc)
}

// stopOwner stops a coordinator for longer than its leases, which another takes over, and resumes the coordinator.
func stopOwner(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	w.suspend(w.coordinators[0])
	w.resume(w.coordinators[0])
}

// stopBeforeAck stops a coordinator at the moment at which the broker has a message of this coordinator, before the
// acknowledgement arrives.
func stopBeforeAck(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	c, stopped := w.coordinators[0], make(chan struct{})
	var once sync.Once
	w.on(func(by *coordinator, e wire.Event) wire.Act {
		if by == c && e.Name == "basic.ack" && len(e.Messages) > 0 {
			once.Do(func() {
				w.suspend(c)
				close(stopped)
			})
		}
		return wire.Pass
	})
	select {
	case <-stopped:
	case <-ctx.Done():
		w.t.Fatal("the coordinator has published nothing")
	}
	w.on(nil)
	w.resume(c)
}

// suspend stops a coordinator, and returns when none of its threads runs any more: the signal only asks for the stop.
func (w *world) suspend(c *coordinator) {
	w.t.Helper()
	w.ledger.Fault("SIGSTOP to " + c.grpc)
	if err := c.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		w.t.Error(err)
	}
	servers.Eventually(w.t, patience, "every thread of "+c.grpc+" stands still", func() bool {
		states, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.Cmd.Process.Pid))
		return err == nil && !slices.ContainsFunc(states, func(path string) bool {
			stat, err := os.ReadFile(path)
			return err == nil && !bytes.Contains(stat, []byte(") T ")) // a thread that is gone does not run either
		})
	})
}

// resume continues a coordinator when all its leases have ended.
func (w *world) resume(c *coordinator) {
	w.t.Helper()
	wait(20 * time.Second)
	w.ledger.Fault("SIGCONT to " + c.grpc)
	if err := c.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		w.t.Fatal(err)
	}
	c.Ready(c.http)
}

func sentAgain(t *testing.T, w *world, _ *load, _ End) {
	t.Helper()
	if w.ledger.Further() == 0 {
		t.Error("no message was sent again: the coordinator was stopped with nothing in its hands")
	}
}
