package guard

import (
	"context"
	"maps"
	"net/netip"
	"sync/atomic"
	"time"
)

// A request that has begun and does not arrive holds a call and its announced bytes. So the time of a request is
// bounded: the guard closes the connection of a slow request, which frees what the connection held.
const (
	// slowTick is how often connections are checked.
	slowTick = 10 * time.Second
	// slowTicks is how many whole ticks a request has to arrive. Half a minute is how long the SDKs retry in all, and the
	// largest request comes in that time through 5 Mbit/s.
	slowTicks = 3
)

// arrivingByTick counts the requests of a connection that are being received, by the tick in which they began. The tick
// that runs needs one more slot. A request costs two atomic steps.
type arrivingByTick [slowTicks + 1]atomic.Int32

// slot is where requests that begin in a tick are counted.
func (a *arrivingByTick) slot(tick uint32) *atomic.Int32 { return &a[tick%uint32(len(a))] }

// CloseSlow closes connections with requests that do not arrive, until the context ends.
func (g *Guard) CloseSlow(ctx context.Context) {
	ticker := time.NewTicker(slowTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			for _, c := range g.nextTick() {
				g.config.Logger.Warn("a connection was closed: a request did not arrive whole in time",
					"from", c.RemoteAddr().String(), "within_ms", (slowTicks * slowTick).Milliseconds())
				_ = c.Conn.Close() // gRPC finds the connection closed, and then calls connection.Close
			}
		}
	}
}

// nextTick begins a tick and returns the connections with requests that have been arriving since the last use of its
// slot. The look comes before the tick begins. Otherwise requests that begin in between would count as the old ones.
func (g *Guard) nextTick() (slow []*connection) {
	next := g.tick.Load() + 1
	defer g.tick.Store(next)
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.addresses, func(_ netip.Addr, a *address) bool { return a.idle() })
	for c := range g.open {
		c.sweep()
		if c.arriving.slot(next).Load() > 0 {
			slow = append(slow, c)
		}
	}
	return slow
}
