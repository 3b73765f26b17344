package callback

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
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
	open      sync.Map // of *socket by its own address
}

// socket is a connection that knows since when what was written to it has had no answer.
type socket struct {
	net.Conn
	all     *sockets
	waiting atomic.Int64 // since when, in ns since 1970; 0: all is answered
}

// dialer returns the dial function for connections that are watched.
func (s *sockets) dialer(dial *net.Dialer) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		watched := &socket{Conn: conn, all: s}
		s.open.Store(conn.LocalAddr().String(), watched)
		return watched, nil
	}
}

// Read returns what a replica has sent.
func (s *socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if n > 0 {
		s.waiting.Store(0)
	}
	return n, err
}

// Write sends something to a replica.
func (s *socket) Write(b []byte) (int, error) {
	s.waiting.CompareAndSwap(0, time.Now().UnixNano())
	return s.Conn.Write(b)
}

// Close ends the connection.
func (s *socket) Close() error {
	s.all.open.CompareAndDelete(s.LocalAddr().String(), s)
	return s.Conn.Close()
}

// intercept makes a call, and closes the call's connection if that is mute.
func (s *sockets) intercept( //nolint:revive // grpc.UnaryClientInterceptor has these parameters
	ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	var on peer.Peer
	err := invoke(ctx, method, request, answer, conn, append(slices.Clip(options), grpc.Peer(&on))...)
	if status.Code(err) == codes.DeadlineExceeded && on.LocalAddr != nil {
		s.closeMute(on.LocalAddr.String())
	}
	return err
}

func (s *sockets) closeMute(address string) {
	found, ok := s.open.Load(address)
	if !ok {
		return
	}
	timedOut := found.(*socket)
	if since := timedOut.waiting.Load(); since != 0 && time.Since(time.Unix(0, since)) >= s.muteAfter {
		_ = timedOut.Close() // the calls on it end with UNAVAILABLE, and their messages are asked about again
	}
}
