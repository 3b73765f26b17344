package simulation

import (
	"context"
	"fmt"
	"time"
)

// networkFaults are faults of connections.
var networkFaults = []fault{
	{name: "cuts", chance: 60, start: cutWrites},
	{name: "delays", chance: 60, start: delayWrites},
	{name: "stalls", chance: 40, start: stallNodes},
}

// cutWrites cuts connections before, inside and after a write.
func cutWrites(ctx context.Context, w *World, d draws) {
	perTenThousand := 5 + d.intn("per ten thousand", 100)
	w.Network.Decide(func(c *Conn, e Event) Fate {
		if ctx.Err() != nil || e.Kind != Wrote || d.intn(c.name, 10_000) >= perTenThousand {
			return Fate{}
		}
		cut := CutBefore + Cut(d.intn("where", 3))
		if !d.strikes(c.name) {
			return Fate{}
		}
		return Fate{Cut: cut}
	})
}

// delayWrites delays some writes, each connection for itself, so that what two connections carry changes its order.
func delayWrites(ctx context.Context, w *World, d draws) {
	percent := 1 + d.intn("percent", 30)
	most := d.within("most", time.Millisecond, 4*time.Second)
	w.Network.Decide(func(c *Conn, e Event) Fate {
		if ctx.Err() != nil || d.intn(c.name, 100) >= percent {
			return Fate{}
		}
		delay := d.within("short delay", 0, 3*time.Millisecond)
		if d.intn("long", 10) == 0 {
			delay = d.within("delay", 0, most)
		}
		if !d.strikes(c.name) {
			return Fate{}
		}
		return Fate{Delay: delay}
	})
}

// stallNodes pauses coordinators for 1 to 90 s.
func stallNodes(ctx context.Context, w *World, d draws) {
	w.goes(func() {
		for sleep(ctx, d.long("pause", time.Second, time.Minute)) == nil {
			n := w.Nodes[d.intn("node", len(w.Nodes))]
			long := d.long("length", time.Second, 90*time.Second)
			if !d.strikes(fmt.Sprintf("coordinator %d", n.Number)) {
				continue
			}
			w.Ledger.Fault(n.Host().Name() + " stalls for " + long.String())
			w.note("%s stalls for %v", n.Host().Name(), long)
			n.Host().Stall(long)
		}
		for _, n := range w.Nodes {
			n.Host().Stall(0)
		}
	})
}
