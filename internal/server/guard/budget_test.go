package guard

import (
	"context"
	"net"
	"net/netip"
	"testing"
)

// connectFrom adds an open connection of an address.
func connectFrom(t *testing.T, g *Guard, ip string) *connection {
	t.Helper()
	client, served := net.Pipe()
	t.Cleanup(func() { _, _ = client.Close(), served.Close() })
	c := &connection{Conn: served, guard: g, address: g.addressLocked(netip.MustParseAddr(ip))}
	c.address.connections++
	g.open[c] = struct{}{}
	return c
}

// acquireAll takes one after another until the budget allows no more.
func acquireAll(c *connection, r resource) (n int64) {
	for c.acquireLocked(r, 1) {
		n++
	}
	return n
}

func TestOneAddressAloneUsesNearlyAll(t *testing.T) {
	t.Parallel()
	g := New(Config{Limits: Limits{Calls: 800}})
	held := acquireAll(connectFrom(t, g, "10.0.0.1"), unfinishedCalls)
	if held != 400 {
		t.Errorf("one connection holds %d of 800, want half", held)
	}
	for range 9 {
		held += acquireAll(connectFrom(t, g, "10.0.0.1"), unfinishedCalls)
	}
	if held != 700 {
		t.Errorf("one address holds %d of 800, want seven eighths", held)
	}
}

func TestGreedyAddressesLeaveARest(t *testing.T) {
	t.Parallel()
	g := New(Config{Limits: Limits{Calls: 8000}})
	for _, ip := range []string{"10.0.0.1", "10.0.0.2"} {
		for range 20 {
			acquireAll(connectFrom(t, g, ip), unfinishedCalls)
		}
	}
	if free := 8000 - g.budgets[unfinishedCalls].used.Load(); free != 125 {
		t.Errorf("two greedy addresses leave %d of 8000, want an eighth of an eighth", free)
	}
	if n := acquireAll(connectFrom(t, g, "10.0.0.3"), unfinishedCalls); n < 60 {
		t.Errorf("another connection may hold only %d calls, want half of the rest", n)
	}
}

func TestARefusedRequestHoldsNothing(t *testing.T) {
	t.Parallel()
	g := New(Config{Limits: Limits{Bytes: 16 << 20, Request: 16 << 20}})
	one, other := connectFrom(t, g, "10.0.0.1"), connectFrom(t, g, "10.0.0.2")
	small := &request{conn: other, decoded: true}
	if !small.acquireBytesLocked(1) {
		t.Fatal("a small request is refused")
	}
	large := &request{conn: one, decoded: true}
	if !large.acquireBytesLocked(12<<20) || (&request{conn: one}).acquireBytesLocked(1<<20) {
		t.Fatal("want the first large request admitted, and the second refused")
	}
	large.endLocked()
	small.endLocked()
	for r := range g.budgets {
		if n := g.budgets[r].used.Load() + one.address.held[r].Load() + one.held[r]; n != 0 {
			t.Errorf("%d of resource %d are still held", n, r)
		}
	}
}

func TestReconnectingGivesNoSecondShare(t *testing.T) {
	t.Parallel()
	g := New(Config{Limits: Limits{Calls: 800, Bytes: 1 << 20}})
	before := connectFrom(t, g, "10.0.0.1")
	call := before.admit(context.Background(), "/service/Call")
	call.setHandled()
	_ = before.Close()
	g.nextTick()
	again := connectFrom(t, g, "10.0.0.1")
	if n := again.address.held[unfinishedCalls].Load(); n != 1 {
		t.Errorf("the address holds %d calls, want that of its earlier connection", n)
	}
	_ = again.Close()
	call.end()
	g.nextTick()
	if n := len(g.addresses); n != 0 {
		t.Errorf("%d addresses are kept, and none is connected", n)
	}
}
