package simulation

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/msghandler/msghandler/internal/ground/network"
)

// Event is an act of a connection.
type Event struct {
	// Number counts the events of the world from 1, and At is the simulated time since its start.
	Number int
	At     time.Duration
	Kind   Kind
	// Conn is the name of the connection, FROM>TO#NUMBER, and Side the host that acts.
	Conn, Side string
	// Bytes and Sum are the length and a hash of what is written.
	Bytes int
	Sum   uint32
}

// Kind is a kind of event.
type Kind string

// The kinds of events.
const (
	Dialled Kind = "dial"
	Wrote   Kind = "write"
	Closed  Kind = "close"
	WasCut  Kind = "cut"
	Killed  Kind = "kill"
)

// Fate is what becomes of a write or a dial. The zero Fate lets it pass at once.
type Fate struct {
	// Delay is how much later the bytes arrive.
	Delay time.Duration
	Cut   Cut
}

// Cut is where a write is cut, and its connection with it.
type Cut int

// The cuts.
const (
	Whole Cut = iota
	CutBefore
	CutHalf
	CutAfter
)

// Network joins hosts by connections in memory.
type Network struct {
	begun time.Time
	mu    sync.Mutex
	// doors are who listens, by the address.
	doors map[string]door
	// numbers counts the connections by FROM>TO.
	numbers map[string]int
	events  int
	hosts   map[netip.Addr]*Host
	// watchers see each event, and may block; fates decide about dials and writes, and the worst of them happens.
	watchers []func(Event)
	fates    []func(*Conn, Event) Fate
	ports    uint16
}

// door takes connections.
type door interface{ take(c *Conn) }

// NewNetwork is a network without hosts.
func NewNetwork() *Network {
	return &Network{begun: time.Now(), doors: map[string]door{}, numbers: map[string]int{}, hosts: map[netip.Addr]*Host{}}
}

// Watch has a function called for each event before it takes effect. The function may block its connection.
func (n *Network) Watch(see func(Event)) { n.watchers = append(n.watchers, see) }

// Decide adds a function that decides about dials and writes.
func (n *Network) Decide(fate func(*Conn, Event) Fate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fates = append(n.fates, fate)
}

// Events is how many there were.
func (n *Network) Events() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.events
}

// act is what every event of every connection passes.
func (n *Network) act(c *Conn, kind Kind, b []byte) Fate {
	n.mu.Lock()
	n.events++
	e := Event{Number: n.events, At: time.Since(n.begun), Kind: kind, Conn: c.name, Side: c.host.name, Bytes: len(b)}
	fates := n.fates
	n.mu.Unlock()
	if len(n.watchers) > 0 {
		h := fnv.New32a()
		_, _ = h.Write(b) // a hash never fails
		e.Sum = h.Sum32()
		for _, see := range n.watchers {
			see(e)
		}
	}
	var all Fate
	if kind != Dialled && kind != Wrote || c.host.unbroken || c.peer.host.unbroken {
		return all
	}
	for _, decide := range fates {
		f := decide(c, e)
		all.Delay = max(all.Delay, f.Delay)
		all.Cut = max(all.Cut, f.Cut)
	}
	return all
}

// Host is a machine with one process. Its methods may be called concurrently.
type Host struct {
	network *Network
	name    string
	at      netip.Addr

	mu   sync.Mutex
	dead bool
	// died is closed with the end of the host.
	died  chan struct{}
	conns map[*Conn]bool
	// unbroken: no fault strikes the connections of the host.
	unbroken bool
	doors    []string
	// stalled is until when nothing gets in or out.
	stalled time.Time
	// wrote is called for each write while it says that it wants more.
	wrote func() (more bool)
}

// eachWrite has a function called after each write of the host, until the function returns false.
func (h *Host) eachWrite(wrote func() (more bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrote = wrote
}

// countWrite calls the function of eachWrite.
func (h *Host) countWrite() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wrote != nil && !h.wrote() {
		h.wrote = nil
	}
}

// Host adds a host. A later host at the same address takes the place of an earlier one.
func (n *Network) Host(name, address string) *Host {
	h := &Host{
		network: n, name: name, at: netip.MustParseAddr(address), conns: map[*Conn]bool{}, died: make(chan struct{}),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[h.at] = h
	return h
}

// Name is the host's name.
func (h *Host) Name() string { return h.name }

// Network is the network as the programs of the host have it.
func (h *Host) Network() network.Network { return network.Network{Dial: h.Dial, Listen: h.Listen} }

// Dial implements network.Dialer.
func (h *Host) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	near, far, to := h.connect(addr)
	if near == nil {
		return nil, refused
	}
	f := h.network.act(near, Dialled, nil)
	if near.opensRedis() {
		// The driver opens a subscription with a lock held, for which its Close waits. Such a wait stops the bubble's clock.
		f.Delay = 0
		if h.stalledUntil().After(time.Now()) {
			f.Cut = CutBefore
		}
	}
	if f.Delay > 0 {
		select {
		case <-ctx.Done():
		case <-h.died: // a library may hold a lock while it dials, for which the end of its process waits
		case <-time.After(f.Delay):
		}
	}
	if err := ctx.Err(); err != nil || f.Cut != Whole || !h.Alive() {
		near.cut(false)
		if err == nil {
			err = refused
		}
		return nil, err
	}
	to.take(far)
	return near, nil
}

// connect makes both ends of a connection; nil: no program listens, or this host is dead.
func (h *Host) connect(addr string) (near, far *Conn, to door) {
	target, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, nil, nil
	}
	n := h.network
	n.mu.Lock()
	to, other := n.doors[addr], n.hosts[target.Addr()]
	if to == nil || other == nil {
		n.mu.Unlock()
		return nil, nil, nil
	}
	ends := h.name + ">" + other.name
	n.numbers[ends]++
	n.ports++
	name := fmt.Sprintf("%s#%d", ends, n.numbers[ends])
	from := netip.AddrPortFrom(h.at, 10_000+n.ports%50_000)
	n.mu.Unlock()
	there, back := newStream(other), newStream(h)
	near = &Conn{host: h, name: name, local: from, remote: target, in: back, out: there}
	far = &Conn{host: other, name: name, local: target, remote: from, in: there, out: back}
	near.peer, far.peer = far, near
	if !h.enter(near) || !other.enter(far) {
		near.cut(false)
		return nil, nil, nil
	}
	return near, far, to
}

func (h *Host) enter(c *Conn) (alive bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.dead {
		h.conns[c] = true
	}
	return !h.dead
}

func (h *Host) leave(c *Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
}

// Listen implements network.Network.
func (h *Host) Listen(_ context.Context, _, addr string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	l := &listener{network: h.network, at: at, changed: make(chan struct{})}
	return l, h.open(addr, l)
}

// Serve has connections to an address served.
func (h *Host) Serve(addr string, serve func(c net.Conn)) error { return h.open(addr, served(serve)) }

type served func(c net.Conn)

func (s served) take(c *Conn) { s(c) }

func (h *Host) open(addr string, d door) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.dead || n.doors[addr] != nil {
		return &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EADDRINUSE}
	}
	n.doors[addr] = d
	h.doors = append(h.doors, addr)
	return nil
}

// Kill ends the host as a power cut does. What the host has written may still arrive.
func (h *Host) Kill() {
	h.mu.Lock()
	if !h.dead {
		close(h.died)
	}
	h.dead = true
	doors := h.doors
	h.mu.Unlock()
	h.network.mu.Lock()
	for _, addr := range doors {
		delete(h.network.doors, addr)
	}
	h.network.mu.Unlock()
	for _, c := range h.connections() {
		c.host.network.act(c, Killed, nil)
		c.cut(true)
	}
}

// Cut cuts all connections of the host for which a function says so.
func (h *Host) Cut(which func(c *Conn) bool) {
	for _, c := range h.connections() {
		if which(c) {
			c.host.network.act(c, WasCut, nil)
			c.cut(false)
		}
	}
}

// connections are the open connections, in the order of their names.
func (h *Host) connections() []*Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return sortedConns(h.conns)
}

// Stall lets nothing in or out for so long: the process is paused, or its network is.
func (h *Host) Stall(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stalled = time.Now().Add(d)
}

// stalledUntil is zero, or when the host goes on.
func (h *Host) stalledUntil() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stalled
}

// Alive says whether the host was not killed.
func (h *Host) Alive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.dead
}
