package server_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/msghandler/msghandler/internal/server"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/wire"
)

// The house's own client calls from 127.0.0.1.
const attacker = 2

func openLimited(t *testing.T, limits server.Limits) *house {
	t.Helper()
	return open(t, func(c *server.Config) { c.Limits = limits })
}

// dialFrom connects from 127.0.0.N.
func (h *house) dialFrom(t *testing.T, n byte) *wire.RawConn {
	t.Helper()
	conn, err := wire.DialRawFrom(net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, n)}}, h.conn.Target())
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// settled waits until the server has read all that the connection has sent so far: a probe that was sent later
// is answered.
func settled(t *testing.T, conn *wire.RawConn) {
	t.Helper()
	stream, err := conn.Begin(healthv1.Health_Check_FullMethodName)
	must.Succeed(t, err)
	must.Succeed(t, conn.Send(stream, wire.Prefix(false, 0), 0, true))
	wantAnswer(t, conn, stream, codes.OK)
}

// announceFrom announces requests by each of several connections of an address.
func (h *house) announceFrom(t *testing.T, n byte, connections, requests, size int) {
	t.Helper()
	for range connections {
		conn := h.dialFrom(t, n)
		for range requests {
			announce(t, conn, sendHalf, size)
		}
		settled(t, conn)
	}
}

func TestUnfinishedCallsLeaveOtherAddressesRoom(t *testing.T) {
	t.Parallel()
	for name, method := range map[string]string{"calls": sendHalf, "probes": healthv1.Health_Check_FullMethodName} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := openLimited(t, server.Limits{}.WithCalls(100))
			for range 4 {
				conn := h.dialFrom(t, attacker)
				for range 60 {
					if _, err := conn.Begin(method); err != nil {
						t.Fatal(err)
					}
				}
				// An attacker's own probes may be refused, so a call to no method shows that the headers have
				// been read.
				stream, err := conn.Begin("/none.None/None")
				must.Succeed(t, err)
				if _, err := conn.Answer(stream, time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			h.alive(t)
			settled(t, h.dialFrom(t, 1))
		})
	}
}

func TestAnnouncedBytesLeaveOtherAddressesRoom(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"large": 4 << 20, "small": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := openLimited(t, server.Limits{Bytes: 64 << 20})
			h.announceFrom(t, attacker, 8, 600, size)
			h.alive(t)
			if !hasRoom(t, h.dialFrom(t, 1), 4<<20) {
				t.Error("a large request of another address is refused")
			}
		})
	}
}

func TestOneConnectionLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	h := openLimited(t, server.Limits{Bytes: 64 << 20})
	h.announceFrom(t, 1, 1, 20, 4<<20)
	if !hasRoom(t, h.dialFrom(t, 1), 4<<20) {
		t.Error("a large request of another connection is refused")
	}
}

// Small requests hold their announced bytes at once. A request that was admitted therefore never finds the room
// used up.
func TestSmallRequestsCloseNoOtherConnection(t *testing.T) {
	t.Parallel()
	h := openLimited(t, server.Limits{Bytes: 128 << 10})
	innocent, guilty := h.dialFrom(t, 1), h.dialFrom(t, attacker)
	admitted := announce(t, innocent, sendHalf, 100)
	settled(t, innocent)
	var streams []uint32
	for range 20 {
		streams = append(streams, announce(t, guilty, sendHalf, 60<<10))
	}
	settled(t, guilty)
	for _, stream := range streams {
		if err := guilty.Send(stream, make([]byte, 8<<10), 0, false); err != nil && !errors.Is(err, wire.ErrAnswered) {
			t.Fatal(err)
		}
	}
	settled(t, guilty)
	must.Succeed(t, innocent.Send(admitted, make([]byte, 100), 0, true))
	wantAnswer(t, innocent, admitted, codes.InvalidArgument)
	wantAnswer(t, guilty, streams[len(streams)-1], codes.ResourceExhausted)
}
