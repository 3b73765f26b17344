package guard

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// The port serves HTTP beside native gRPC, and the same budgets hold for both. Native gRPC is what begins with the
// preface of HTTP/2 in cleartext, and what offers nothing but HTTP/2 in TLS. All other connections go to an HTTP
// server, which serves JSON, the Connect protocol, and gRPC to clients that offer both versions of HTTP.

const (
	// SmallBody is how many bytes the body of an HTTP request may have that does not say its length.
	SmallBody = smallRequest
	// ArrivalTimeout is how long the body of an HTTP request may take.
	ArrivalTimeout = slowTicks * slowTick
)

// nativePreface is how native gRPC begins, and no method of HTTP/1.1 does.
const nativePreface = "PRI "

var errNotServing = errors.New("no HTTP server accepts connections")

// accepted is a connection that gRPC has accepted. gRPC resets the deadlines of a connection after its handshake, also
// of a dispatched connection. The deadlines of the HTTP server must stay.
type accepted struct {
	net.Conn
	dispatched atomic.Bool
}

// SetDeadline implements net.Conn.
func (a *accepted) SetDeadline(t time.Time) error {
	if a.dispatched.Load() {
		return nil
	}
	return a.Conn.SetDeadline(t)
}

// Listen returns the listener that a gRPC server behind the guard must serve.
func (*Guard) Listen(listener net.Listener) net.Listener { return acceptor{listener} }

type acceptor struct{ net.Listener }

// Accept implements net.Listener.
func (a acceptor) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &accepted{Conn: conn}, nil
}

// HTTP is the listener of the connections that are not native gRPC.
func (g *Guard) HTTP() net.Listener { return g.http }

// dispatcher hands connections to an HTTP server. It implements net.Listener.
type dispatcher struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newDispatcher() *dispatcher {
	return &dispatcher{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (d *dispatcher) Accept() (net.Conn, error) {
	select {
	case conn := <-d.conns:
		return conn, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (d *dispatcher) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

// Addr implements net.Listener.
func (*dispatcher) Addr() net.Addr { return &net.TCPAddr{} }

// dispatch hands a connection over, with the error that tells gRPC so.
func (d *dispatcher) dispatch(raw net.Conn, c *connection) error {
	if a, ok := raw.(*accepted); ok {
		_ = a.Conn.SetDeadline(time.Time{})
		a.dispatched.Store(true)
	}
	select {
	case d.conns <- &httpConn{Conn: c, conn: c, opened: time.Now()}:
		return credentials.ErrConnDispatched
	case <-d.closed:
		_ = c.Close()
		return errNotServing
	}
}

// httpConn is a connection that an HTTP server serves.
type httpConn struct {
	net.Conn // the connection
	conn     *connection
	opened   time.Time
}

// Read implements net.Conn. The buffer is given up when it is empty: the HTTP server has its own.
func (h *httpConn) Read(p []byte) (n int, err error) {
	c := h.conn
	if c.in != nil && c.in.Buffered() == 0 {
		c.in = nil
	}
	if c.in != nil {
		n, err = c.in.Read(p)
	} else {
		n, err = c.Conn.Read(p)
	}
	c.received.Add(int64(n))
	return n, err
}

type httpConnKey struct{}

// ConnContext is for http.Server.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, httpConnKey{}, conn)
}

// connOf is the connection of an HTTP request.
func connOf(ctx context.Context) *httpConn {
	c, _ := ctx.Value(httpConnKey{}).(*httpConn)
	return c
}

// IsAged reports whether the client of an HTTP request should be asked to close its connection.
func (g *Guard) IsAged(r *http.Request) bool {
	return time.Since(connOf(r.Context()).opened) > g.config.ConnectionAge
}

// AdmitHTTP takes an HTTP request from the budgets, before a byte of its body is read. announced is the size of its
// body. The body of a gRPC request is announced by the request's own prefix: announced is negative, and the body must
// be read through the result of Announcing. After a nil error, end must be called.
func (g *Guard) AdmitHTTP(
	r *http.Request, method string, announced int64,
) (ctx context.Context, end func(), err error) {
	c := connOf(r.Context()).conn
	from := &peer.Peer{Addr: c.RemoteAddr(), LocalAddr: c.LocalAddr(), AuthInfo: authInfo{c.info, c}}
	admitted := &request{
		Context: peer.NewContext(r.Context(), from), conn: c, call: callOf(method), further: g.furtherOf(method),
	}
	admitted.setHandled()
	encoding := r.Header.Get("Content-Encoding")
	admitted.compressed = encoding != "" && encoding != "identity"
	if err = admitted.enter(announced); err != nil && g.sweep() {
		err = admitted.enter(announced)
	}
	if err != nil {
		return nil, nil, g.refuse(admitted, method, err)
	}
	return admitted, admitted.end, nil
}

// enter takes the call and the announced bytes of an HTTP request, or nothing.
func (r *request) enter(announced int64) error {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	if !r.conn.acquireLocked(r.call, 1) {
		return ErrTooManyCalls
	}
	if announced < 0 {
		return nil
	}
	r.announced = true
	if !r.holdLocked(announced) { // JSON may be larger than a request of gRPC
		r.conn.releaseLocked(r.call, 1)
		return ErrBytes
	}
	return nil
}

// Announcing returns the body of a gRPC request that AdmitHTTP has admitted. The body ends where the budgets do not
// allow the size that its prefix announces.
func Announcing(ctx context.Context, body io.ReadCloser) io.ReadCloser {
	return &announcing{ReadCloser: body, request: requestOf(ctx)}
}

type announcing struct {
	io.ReadCloser
	request *request
	// ended is set when no more is read.
	ended error
}

// Read implements io.Reader. Inside a message Read fills p: gRPC keeps each buffer that it reads into until the message
// is complete, and a client that sends single bytes would make each byte cost a buffer.
func (a *announcing) Read(p []byte) (n int, err error) {
	for n == 0 || n < len(p) && err == nil && a.insideMessage() {
		var more int
		more, err = a.read(p[n:])
		n += more
		if more == 0 {
			break
		}
	}
	return n, err
}

func (a *announcing) insideMessage() bool {
	a.request.conn.mu.Lock()
	defer a.request.conn.mu.Unlock()
	return a.ended == nil && a.request.messages.inside()
}

// read reads once.
func (a *announcing) read(p []byte) (int, error) {
	if a.ended != nil {
		return 0, a.ended
	}
	n, err := a.ReadCloser.Read(p)
	r := a.request
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	switch {
	case r.ended: // it is answered, and must not hold anything again
		a.ended = io.EOF
		return 0, a.ended
	case !r.receiveLocked(p[:n]):
		a.ended = errFurtherMessage
		return 0, a.ended
	case r.unread > maxUnread: // gRPC behind an HTTP server receives a body without waiting for the stream
		a.ended = errUnread
		return 0, a.ended
	case r.refused, r.messages.left > int64(r.conn.guard.config.Limits.Request):
		a.ended = io.EOF
	}
	if err != nil {
		r.setAnnouncedLocked()
	}
	return n, err
}

// Decode decodes what has arrived of an HTTP request, for the decode function of a method of Service or a stream.
func (g *Guard) Decode(v any, data []byte, decode Decoder) error {
	in, ok := v.(*incoming)
	if !ok {
		return errors.New("only a guarded service decodes requests")
	}
	defer g.codec.enter(len(data))()
	return g.codec.decode(data, in, decode)
}

// Limits are the limits of requests.
func (g *Guard) Limits() Limits { return g.config.Limits }
