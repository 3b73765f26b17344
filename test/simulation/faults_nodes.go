package simulation

import (
	"context"
	"fmt"
	"time"
)

// nodeFaults are faults of the coordinators' and producers' processes.
var nodeFaults = []fault{
	{name: "kills", chance: 50, start: killNodes},
	{name: "producer kills", chance: 40, start: killProducers},
}

// killNodes kills coordinators between two writes, and starts others in their places.
func killNodes(ctx context.Context, w *World, d draws) {
	w.goes(func() {
		for sleep(ctx, d.long("pause", time.Second, time.Minute)) == nil {
			n := w.Nodes[d.intn("node", len(w.Nodes))]
			writes, absence := d.intn("writes", 200), d.long("absence", 0, 30*time.Second)
			if !d.strikes(fmt.Sprintf("coordinator %d", n.Number)) {
				continue
			}
			w.awaitWrites(ctx, n.Host(), writes)
			w.Ledger.Fault(n.Host().Name() + " is killed")
			w.note("kill %s", n.Host().Name())
			n.Kill()
			_ = sleep(ctx, absence)
			n.Restart()
		}
	})
}

// awaitWrites waits until a host has written so many times, for some seconds at most.
func (w *World) awaitWrites(ctx context.Context, host *Host, writes int) {
	reached := make(chan struct{})
	left := writes
	host.eachWrite(func() (more bool) {
		if left--; left == 0 {
			close(reached)
		}
		return left > 0
	})
	defer host.eachWrite(nil)
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-reached:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// killProducers kills producers, whose databases stay.
func killProducers(ctx context.Context, w *World, d draws) {
	w.goes(func() {
		for sleep(ctx, d.long("pause", time.Second, 90*time.Second)) == nil {
			p := w.producers[d.intn("producer", len(w.producers))]
			if !d.strikes("producer " + p.name()) {
				continue
			}
			w.Ledger.Fault("producer " + p.name() + " is killed")
			w.note("kill producer %s", p.name())
			p.restart()
		}
	})
}
