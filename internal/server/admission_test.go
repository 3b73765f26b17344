package server_test

import (
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/msghandler/msghandler/internal/server"
	"github.com/msghandler/msghandler/internal/server/guard"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/wire"
)

const sendHalf = msghandlerv1.MessageHandlerService_SendHalfMessage_FullMethodName

// openRaw serves with limits, and returns a connection that sends requests in parts, and the reasons of refusals.
func openRaw(t *testing.T, limits server.Limits) (h *house, conn *wire.RawConn, refused chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	refused = make(chan string, 100)
	h = openAt(t, listener, func(c *server.Config) {
		c.Limits, c.RefusedUnread = limits, func(reason string) {
			select {
			case refused <- reason:
			default: // the callback must not block, and no test reads so many
			}
		}
	})
	conn, err = wire.DialRaw(listener.Addr().String())
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	return h, conn, refused
}

// announce begins a call and announces a request of so many bytes, of which nothing follows.
func announce(t *testing.T, conn *wire.RawConn, method string, size int, headers ...string) uint32 {
	t.Helper()
	stream, err := conn.Begin(method, headers...)
	must.Succeed(t, err)
	if err := conn.Send(stream, wire.Prefix(false, size), 2, false); err != nil && !errors.Is(err, wire.ErrAnswered) {
		t.Fatal(err)
	}
	return stream
}

func wantAnswer(t *testing.T, conn *wire.RawConn, stream uint32, code codes.Code) {
	t.Helper()
	answer, err := conn.Answer(stream, time.Minute)
	if err != nil || answer.Status != strconv.Itoa(int(code)) {
		t.Fatalf("got %+v, %v; want %d", answer, err, code)
	}
}

// hasRoom sends a complete undecodable request, and reports whether the server received the request.
func hasRoom(t *testing.T, conn *wire.RawConn, size int) bool {
	t.Helper()
	stream := announce(t, conn, sendHalf, size)
	if err := conn.Send(stream, make([]byte, size), 0, true); err != nil && !errors.Is(err, wire.ErrAnswered) {
		t.Fatal(err)
	}
	answer, err := conn.Answer(stream, time.Minute)
	must.Succeed(t, err)
	return answer.Status == strconv.Itoa(int(codes.InvalidArgument))
}

// A large request holds its announced bytes until its call ends in any way.
func TestALargeRequestHoldsAnnouncedBytes(t *testing.T) {
	t.Parallel()
	h, conn, refused := openRaw(t, server.Limits{Bytes: 4 << 20})
	first := announce(t, conn, sendHalf, 2<<20)
	wantAnswer(t, conn, announce(t, conn, sendHalf, 2<<20), codes.ResourceExhausted)
	if reason := <-refused; reason != guard.RefusedBytes {
		t.Errorf("the call is refused for %q", reason)
	}
	if _, err := h.producers.SendHalfMessage(t.Context(), good("small")); err != nil {
		t.Errorf("a small request got %v", err)
	}
	must.Succeed(t, conn.Reset(first))
	eventually(t, "the first has given its bytes back", func() bool { return hasRoom(t, conn, 2<<20) })
}

// Announced small requests of a connection leave room for the other connections of its address.
func TestASmallRequestHoldsAnnouncedBytes(t *testing.T) {
	t.Parallel()
	h, conn, _ := openRaw(t, server.Limits{Bytes: 256 << 10})
	last := uint32(0)
	for range 20 {
		last = announce(t, conn, sendHalf, 60<<10)
	}
	wantAnswer(t, conn, last, codes.ResourceExhausted)
	h.alive(t)
	if _, err := h.health.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
}

// Calls without a handler release their budgets: calls of unknown methods, with unknown compression, and refused
// unread.
func TestCallsWithoutAHandlerHoldNothing(t *testing.T) {
	t.Parallel()
	h, conn, _ := openRaw(t, server.Limits{Bytes: 4 << 20}.WithCalls(10))
	for range 5 {
		wantAnswer(t, conn, announce(t, conn, "/msghandler.v1.MessageHandlerService/Nothing", 3<<20), codes.Unimplemented)
		wantAnswer(t, conn, announce(t, conn, sendHalf, 3<<20, "grpc-encoding", "snappy"), codes.Unimplemented)
	}
	eventually(t, "there is room", func() bool {
		_, err := h.producers.SendHalfMessage(t.Context(), good("1"))
		return err == nil
	})
	eventually(t, "there is room for a large request", func() bool { return hasRoom(t, conn, 3<<20) })
}

// A request that ends without a size is answered.
func TestAnEmptyRequestIsAnswered(t *testing.T) {
	t.Parallel()
	_, conn, _ := openRaw(t, server.Limits{})
	stream, err := conn.Begin(sendHalf)
	must.Succeed(t, err)
	must.Succeed(t, conn.Send(stream, nil, 0, true))
	wantAnswer(t, conn, stream, codes.Internal)
}
