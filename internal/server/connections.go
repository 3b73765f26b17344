package server

import (
	"bufio"
	"cmp"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msghandler/msghandler/internal/connlimit"
)

// connections are those to the server. gRPC closes one when it is drained, and so waits for clients: for one that does
// not finish its greeting, and for one that does not read its answers. A stop must not depend on them, so it can close
// connections by itself. Each comes by here as gRPC greets it.
type connections struct {
	credentials.TransportCredentials

	mu sync.Mutex
	// shaking are those that are still being secured.
	shaking map[net.Conn]struct{}
	open    map[*connection]struct{}
	// addresses are those of the open connections. An address stays until its last request has ended, so a
	// client that connects again does not get a second share.
	addresses map[netip.Addr]*address
	// closing says that no more are taken.
	closing bool

	// tick counts the looks at what arrives.
	tick atomic.Uint32

	// budgets bound what requests hold.
	budgets *[resources]budget
	// swept is when arrivals without handlers were last looked for, in nanoseconds.
	swept atomic.Int64
	// maxRequest is how long a request may be, in bytes.
	maxRequest int64
}

// connection is one of them.
type connection struct {
	net.Conn
	all     *connections
	address *address
	// heard is how many bytes have come.
	heard    atomic.Int64
	arriving arriving

	// in is what has come and is not read yet. gRPC reads from it without a buffer of its own, so the frame that it has
	// read last is the one that was scanned last.
	in     *bufio.Reader
	frames frames

	// mu guards held, arrivals, and the fields of each arrival.
	mu       sync.Mutex
	held     [resources]int64
	arrivals map[uint32]*arrival
}

// readBuffer is how much is read from a connection at once, in bytes: as much as gRPC would.
const readBuffer = 32 << 10

// greeting is what a client has said at least when gRPC knows it: the preface of HTTP/2 and an empty SETTINGS frame.
// From then on it can be told to go.
const greeting = 24 + 9

var (
	errClosing        = errors.New("the server is stopping")
	errFurtherMessage = errors.New("a further message of a call is larger than any that the API knows")
)

func newConnections(secured credentials.TransportCredentials, limits Limits) *connections {
	return &connections{
		TransportCredentials: cmp.Or(secured, insecure.NewCredentials()),
		budgets:              newBudgets(limits), maxRequest: int64(limits.maxRequest()),
		shaking: map[net.Conn]struct{}{}, open: map[*connection]struct{}{}, addresses: map[netip.Addr]*address{},
	}
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *connections) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if !c.begin(raw) {
		return nil, nil, errClosing
	}
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.shaking, raw)
	if err != nil {
		return nil, nil, err
	}
	if c.closing {
		return nil, nil, errClosing
	}
	one := &connection{
		Conn: conn, all: c, address: c.addressLocked(connlimit.AddressOf(raw)),
		in: bufio.NewReaderSize(conn, readBuffer), frames: newFrames(),
	}
	one.address.connections++
	c.open[one] = struct{}{}
	return one, caller{info, one}, nil
}

// addressLocked finds or adds an address. The caller holds c.mu.
func (c *connections) addressLocked(ip netip.Addr) *address {
	a := c.addresses[ip]
	if a == nil {
		a = &address{}
		c.addresses[ip] = a
	}
	return a
}

func (c *connections) begin(raw net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing {
		c.shaking[raw] = struct{}{}
	}
	return !c.closing
}

// Read implements net.Conn.
func (one *connection) Read(p []byte) (int, error) {
	n, err := one.in.Read(p)
	one.heard.Add(int64(n))
	if !one.frames.scan(p[:n], one.receive) {
		return 0, errFurtherMessage
	}
	return n, err
}

// Close implements net.Conn.
func (one *connection) Close() error {
	one.all.mu.Lock()
	if _, open := one.all.open[one]; open {
		delete(one.all.open, one)
		one.address.connections--
	}
	one.all.mu.Unlock()
	one.mu.Lock()
	for _, a := range one.arrivals {
		if !a.claimed.Load() {
			a.endLocked()
		}
	}
	one.mu.Unlock()
	return one.Conn.Close()
}

// dismiss takes no more connections and closes those that have not finished their greeting.
func (c *connections) dismiss() {
	c.close(func(one *connection) bool { return one.heard.Load() < greeting })
}

// cut takes no more connections and closes all.
func (c *connections) cut() { c.close(func(*connection) bool { return true }) }

func (c *connections) close(which func(*connection) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	for raw := range c.shaking {
		_ = raw.Close()
	}
	for one := range c.open {
		if which(one) {
			_ = one.Conn.Close() // gRPC finds it closed, and says the same to one
		}
	}
}
