package guard

import (
	"bufio"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/internal/connlimit"
	"github.com/msghandler/msghandler/proto/certs"
)

// transport passes each connection of a server through the guard. gRPC closes a connection only when it is drained, and
// so waits for a client that does not finish its greeting or does not read its answers. A stop must not depend on
// clients, so the guard can close connections itself.
type transport struct {
	credentials.TransportCredentials
	guard *Guard
}

// authInfo is how admission finds the connection of a call.
type authInfo struct {
	credentials.AuthInfo
	conn *connection
}

// connection is an open connection.
type connection struct {
	net.Conn
	guard   *Guard
	address *address
	// info is what the client has shown.
	info credentials.AuthInfo
	// received is how many bytes have come.
	received atomic.Int64
	// arriving counts the requests that are being received.
	arriving arrivingByTick

	// in buffers what has come. gRPC reads from in without a buffer of its own, so the frame that gRPC has read last is
	// the frame that was scanned last.
	in     *bufio.Reader
	frames frames

	// mu guards held, requests, and the fields of each request.
	mu       sync.Mutex
	held     [resources]int64
	requests map[uint32]*request
}

// readBuffer is how many bytes are read from a connection at once: as many as gRPC would read.
const readBuffer = 32 << 10

// greeting is how many bytes a client has sent at least when gRPC knows the client: the preface of HTTP/2 and an empty
// SETTINGS frame. From then on gRPC can ask the client to close.
const greeting = 24 + 9

var (
	errClosing        = errors.New("the server is stopping")
	errFurtherMessage = errors.New("a further message of a call is larger than any that the API knows")
	errUnread         = errors.New("messages of a call arrive faster than the call reads them")
)

// ServerHandshake implements credentials.TransportCredentials. A connection that is not native gRPC goes to the HTTP
// server.
func (t transport) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	g := t.guard
	if !g.beginHandshake(raw) {
		return nil, nil, errClosing
	}
	c, native, err := t.handshake(raw)
	if err = g.endHandshake(raw, c, err); err != nil {
		return nil, nil, err
	}
	if !native {
		return nil, nil, g.http.dispatch(raw, c)
	}
	return c, authInfo{c.info, c}, nil
}

// handshake secures a connection and finds out whether the connection is native gRPC. In cleartext the client's first
// bytes tell.
func (t transport) handshake(raw net.Conn) (c *connection, native bool, err error) {
	conn, info, err := t.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, false, err
	}
	web, isWeb := info.(certs.WebInfo)
	if isWeb {
		info = web.TLSInfo
	}
	c = &connection{
		Conn: conn, guard: t.guard, info: info, in: bufio.NewReaderSize(conn, readBuffer), frames: newFrames(),
	}
	if isWeb || t.guard.config.Credentials != nil {
		return c, !isWeb, nil
	}
	begin, err := c.in.Peek(len(nativePreface))
	return c, string(begin) == nativePreface, err
}

// addressLocked finds or adds an address. The caller holds g.mu.
func (g *Guard) addressLocked(ip netip.Addr) *address {
	a := g.addresses[ip]
	if a == nil {
		a = &address{}
		g.addresses[ip] = a
	}
	return a
}

func (g *Guard) beginHandshake(raw net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closing {
		g.handshaking[raw] = struct{}{}
	}
	return !g.closing
}

// endHandshake adds a connection to the open ones, unless its handshake has failed or the server is stopping.
func (g *Guard) endHandshake(raw net.Conn, c *connection, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.handshaking, raw)
	if err == nil && g.closing {
		err = errClosing
	}
	if err != nil {
		return err
	}
	c.address = g.addressLocked(connlimit.AddressOf(raw))
	c.address.connections++
	g.open[c] = struct{}{}
	return nil
}

// Read implements net.Conn.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.received.Add(int64(n))
	if !c.frames.scan(p[:n], c.receive) {
		return 0, errFurtherMessage
	}
	return n, err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.guard.mu.Lock()
	if _, open := c.guard.open[c]; open {
		delete(c.guard.open, c)
		c.address.connections--
	}
	c.guard.mu.Unlock()
	c.mu.Lock()
	for _, r := range c.requests {
		if !r.handled.Load() {
			r.endLocked()
		}
	}
	c.mu.Unlock()
	return c.Conn.Close()
}
