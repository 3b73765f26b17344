// Package guard stands between gRPC's transport and the handlers. It bounds what a request may hold before a handler
// sees the request: calls without a complete request, announced bytes, decoded items, and the time a request takes to
// arrive.
//
// A request takes from shared budgets before any of its bytes are received, so each admitted request can finish. No
// address and no connection can use up a budget alone.
package guard

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/loglimit"
)

// Config configures a Guard. Every field is required, except where the field says otherwise.
type Config struct {
	// Credentials secure connections. Nil: nothing is encrypted.
	Credentials credentials.TransportCredentials
	Limits      Limits
	// ConnectionAge and ConnectionIdle are when clients are asked to close a connection.
	ConnectionAge, ConnectionIdle time.Duration
	// PingAfter is when a silent client is asked for a sign of life. 0: after PingAfter.
	PingAfter time.Duration
	// Open says whether a method answers everyone. The streams of such methods are bounded. May be nil: none does.
	Open func(method string) bool
	// Identify returns the context of a unary call with the identity of its caller, before the body is read. A caller who
	// may not make the call gets Identify's error, and the body stays unread. Service needs it.
	Identify func(ctx context.Context, method string) (context.Context, error)
	// Translate returns the client's error for a refusal: ErrCompressed, ErrBytes, ErrTooManyCalls,
	// ErrTooLarge or a *FieldError.
	Translate func(err error) error
	// Refused is called for each request that is refused unread, with one of Reasons. It must not block.
	Refused func(reason string)
	// Stopping ends the streams when it ends, except those of Duplex.
	Stopping context.Context
	// Duplex are the methods whose clients go on sending, with how many bytes each further message may have. Such a stream
	// ends by itself when the server stops. May be nil.
	Duplex map[string]int64
	Logger *slog.Logger
}

// Limits bounds the requests of all clients together, and of each request.
type Limits struct {
	// Calls is how many calls may have begun without a complete request; as many again may be probes of health.
	Calls int
	// Streams is how many streams of methods that answer everyone may be open.
	Streams int
	// Bytes is how many announced bytes the requests in flight may hold.
	Bytes int
	// Request is the largest size of a request in bytes.
	Request int
	// Items is how many items a repeated field of a request may have.
	Items int
	// Headers is how many headers a message may have.
	Headers int
}

const (
	// maxStreams is how many calls one connection may have in flight.
	maxStreams = 2000
	// connectionGrace is how long calls may go on after their connection was asked to close: TailMessages lasts a day.
	connectionGrace = 24 * time.Hour
	// MaxHeader is how many bytes the headers of a call may have.
	MaxHeader = 16 << 10
	// HandshakeTimeout is how long a client may take for its greeting, and for the headers of an HTTP request.
	HandshakeTimeout = 10 * time.Second
	// PingAfter is when a silent client is asked for a sign of life.
	PingAfter = 30 * time.Second
	// PingTimeout is how long a silent client has to give a sign of life.
	PingTimeout = 10 * time.Second
	// logInterval is how often one kind of refusal is worth a log line.
	logInterval = 10 * time.Second
)

// Guard knows the open connections of a gRPC server and what their requests hold. It is safe for concurrent use.
type Guard struct {
	config  Config
	budgets *[resources]budget
	codec   codec
	http    *dispatcher
	logged  *loglimit.Limiter

	mu sync.Mutex
	// handshaking are connections that are not secured yet.
	handshaking map[net.Conn]struct{}
	open        map[*connection]struct{}
	// addresses are the addresses of the open connections. An address stays until its last request has ended, so a
	// client that connects again does not get a second share.
	addresses map[netip.Addr]*address
	// closing says that no more connections are accepted.
	closing bool

	// tick counts the rounds of CloseSlow.
	tick atomic.Uint32
	// lastSweep is the time of the last sweep for requests without handlers, in nanoseconds.
	lastSweep atomic.Int64

	// receivers are the goroutines that receive messages of streams.
	receivers lifecycle.Group
}

// New returns a Guard without connections.
func New(config Config) *Guard {
	return &Guard{
		config: config, budgets: newBudgets(config.Limits), codec: newCodec(config.Limits), http: newDispatcher(),
		logged:      loglimit.New(logInterval),
		handshaking: map[net.Conn]struct{}{}, open: map[*connection]struct{}{}, addresses: map[netip.Addr]*address{},
	}
}

// receiveBuffers hold what is received. The buffers of gRPC's own pool take up to four times the size of their content.
var receiveBuffers = func() mem.BufferPool {
	pool, err := mem.NewBinaryTieredBufferPool(8, 10, 11, 12, 13, 14, 15, 20)
	if err != nil {
		panic(err) // the sizes are constants
	}
	return pool
}()

// Options returns the options of a gRPC server behind the guard. Its services go through Service, its streams through
// InterceptStream.
func (g *Guard) Options() []grpc.ServerOption {
	return append(g.HTTPOptions(),
		grpc.Creds(transport{cmp.Or(g.config.Credentials, insecure.NewCredentials()), g}),
		grpc.InTapHandle(g.admit),
		// Admission must know which frame was read last, so each connection has the buffer, and not gRPC.
		grpc.ReadBufferSize(0),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(MaxHeader),
		grpc.ConnectionTimeout(HandshakeTimeout),
		// A dead client is noticed after 40 s, so its waits do not stay for ever.
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: cmp.Or(g.config.PingAfter, PingAfter), Timeout: PingTimeout, MaxConnectionIdle: g.config.ConnectionIdle,
			MaxConnectionAge: g.config.ConnectionAge, MaxConnectionAgeGrace: connectionGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)
}

// HTTPOptions returns the options of a gRPC server behind the guard that serves the requests of an HTTP server.
func (g *Guard) HTTPOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(g.codec),
		experimental.BufferPool(receiveBuffers),
		grpc.MaxRecvMsgSize(g.config.Limits.Request),
	}
}

// Dismiss accepts no more connections and closes those that have not finished their greeting.
func (g *Guard) Dismiss() {
	g.closeWhere(func(c *connection) bool { return c.received.Load() < greeting })
}

// Cut accepts no more connections and closes all.
func (g *Guard) Cut() { g.closeWhere(func(*connection) bool { return true }) }

// Wait waits until no message of a stream is being received. The server's connections must be closed before.
func (g *Guard) Wait(ctx context.Context) error { return g.receivers.Wait(ctx) }

func (g *Guard) closeWhere(chosen func(*connection) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closing = true
	for raw := range g.handshaking {
		_ = raw.Close()
	}
	for c := range g.open {
		if chosen(c) {
			_ = c.Conn.Close() // gRPC finds the connection closed, and then calls connection.Close
		}
	}
}

// AuthInfo returns the credentials that the caller has shown; nil where the context is of no call.
func AuthInfo(ctx context.Context) credentials.AuthInfo {
	if r := requestOf(ctx); r != nil {
		return r.conn.info // behind an HTTP server, gRPC does not know the connection
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(authInfo); ok {
			return info.AuthInfo
		}
	}
	return nil
}
