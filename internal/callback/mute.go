package callback

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/ground/network"
)

// muteAfter is how long a replica may leave calls without a byte of an answer before its connection is closed.
const muteAfter = 10 * time.Second

// sockets are the connections to a target. A call that times out closes a connection that has been mute for long: gRPC
// connects anew, and sends the calls to other replicas until the mute one speaks HTTP/2 again.
//
// gRPC's keepalive would find a mute connection as well, but a server of any language takes its pings for an attack
// after a minute of a Confirm that hangs ("too_many_pings"), and that error would hide the true one.
type sockets struct {
	muteAfter time.Duration
	open      sync.Map // of *socket by ends
}

// ends are both addresses of a connection: connections to several replicas may share the address on this side.
type ends struct{ local, remote string }

func endsOf(local, remote net.Addr) ends { return ends{local.String(), remote.String()} }

// socket is a connection that knows since when its calls have had no answer. Only calls count: much of what gRPC writes
// besides, such as the answer to a ping, never has one.
type socket struct {
	net.Conn
	all *sockets

	mu sync.Mutex
	// lastRead is when the replica last sent a byte.
	lastRead time.Time
	// muteSince is when the first call began that timed out without a byte since; zero: there is none.
	muteSince time.Time
}

// dialer returns the dial function for connections that are watched.
func (s *sockets) dialer(dial network.Dialer) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		watched := &socket{Conn: conn, all: s}
		s.open.Store(endsOf(conn.LocalAddr(), conn.RemoteAddr()), watched)
		return watched, nil
	}
}

// Read returns what a replica has sent.
func (s *socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if n > 0 {
		s.mu.Lock()
		s.lastRead, s.muteSince = time.Now(), time.Time{}
		s.mu.Unlock()
	}
	return n, err
}

// Close ends the connection.
func (s *socket) Close() error {
	s.all.open.CompareAndDelete(endsOf(s.LocalAddr(), s.RemoteAddr()), s)
	return s.Conn.Close()
}

// isMute notes a call that has timed out, and says whether calls have had no byte of an answer for long.
func (s *socket) isMute(began time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.muteSince.IsZero() && s.lastRead.Before(began) {
		s.muteSince = began
	}
	return !s.muteSince.IsZero() && time.Since(s.muteSince) >= s.all.muteAfter
}

// intercept makes a call, and closes the call's connection if that is mute.
func (s *sockets) intercept( //nolint:revive // grpc.UnaryClientInterceptor has these parameters
	ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	var on peer.Peer
	began := time.Now()
	err := invoke(ctx, method, request, answer, conn, append(slices.Clip(options), grpc.Peer(&on))...)
	if status.Code(err) == codes.DeadlineExceeded && on.Addr != nil && on.LocalAddr != nil {
		s.closeMute(endsOf(on.LocalAddr, on.Addr), began)
	}
	return err
}

func (s *sockets) closeMute(of ends, began time.Time) {
	found, ok := s.open.Load(of)
	if !ok {
		return
	}
	if timedOut := found.(*socket); timedOut.isMute(began) {
		_ = timedOut.Close() // the calls on it end with UNAVAILABLE, and their messages are asked about again
	}
}
