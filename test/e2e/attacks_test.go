package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // the client's
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/wire"
)

const (
	// attackedRSS is the memory limit of a coordinator under attack, in bytes, as docs/run/policies.md#connections states.
	attackedRSS = 512 << 20
	// largeRequest is nearly the largest that a coordinator takes.
	largeRequest = 16<<20 - 1024
)

// attacked is a coordinator under attack, and an honest producer of it.
type attacked struct {
	*world
	coordinator *coordinator
	honest      *plainProducer
	sent        int
}

func newAttacked(t *testing.T, files int, settings ...string) *attacked {
	t.Helper()
	w := newWorld(t)
	w.files = files
	w.startCoordinators(1, settings...)
	if _, err := w.channel().QueueDeclare("bills", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	c := w.coordinators[0]
	return &attacked{world: w, coordinator: c, honest: newPlainProducer(t, "billing", c.grpc)}
}

// serves demands that an honest producer's message is delivered now, and that probes are answered.
func (a *attacked) serves() {
	a.t.Helper()
	a.sent++
	id := strconv.Itoa(a.sent)
	ctx, cancel := context.WithTimeout(a.t.Context(), time.Minute)
	defer cancel()
	_, err := a.honest.api.SendHalfMessage(ctx, &pb.SendHalfMessageRequest{
		Producer: "billing", CallbackTarget: a.honest.target, Message: &pb.Message{
			Id: id, RoutingKey: "bills", Body: []byte("honest"),
		},
	})
	if err != nil {
		a.t.Fatalf("the honest message is refused: %v", err)
	}
	if state := a.honest.submit(id, pb.Wait_WAIT_DONE); state != pb.State_STATE_DONE {
		a.t.Fatalf("the honest message is %v", state)
	}
	probe := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	response, err := probe.Get("http://" + a.coordinator.http + "/readyz")
	if err != nil {
		a.t.Fatalf("the probe got no answer: %v", err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		a.t.Fatalf("/readyz says %d, %v\n%s", response.StatusCode, err, body)
	}
}

// peak demands that the coordinator has never exceeded its memory limit.
func (a *attacked) peak() {
	a.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.coordinator.Cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		a.t.Fatalf("no peak in\n%s", status)
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Logf("at its peak the coordinator took %d MiB", kib>>10)
	if kib<<10 > attackedRSS {
		a.t.Errorf("at its peak the coordinator took %d MiB, more than %d", kib>>10, attackedRSS>>20)
	}
}

// dial opens a connection of the attacker.
func (a *attacked) dial() *wire.RawConn {
	a.t.Helper()
	conn, err := wire.DialRaw(a.coordinator.grpc)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(conn.Close)
	return conn
}

// bomb is a request that is small on the wire and as large as possible after unpacking.
func bomb(t *testing.T) []byte {
	t.Helper()
	plain, err := proto.Marshal(&pb.SendHalfMessageRequest{Message: &pb.Message{Body: make([]byte, largeRequest)}})
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := writer.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return append(wire.Prefix(true, packed.Len()), packed.Bytes()...)
}

// 64 requests of 15 KiB each unpack to a gigabyte. None is unpacked.
func TestCompressedRequestsAreRefusedUnread(t *testing.T) {
	a := newAttacked(t, 0)
	conn, request := a.dial(), bomb(t)
	var streams []uint32
	for range 64 {
		stream, err := conn.Begin(pb.MessageHandlerService_SendHalfMessage_FullMethodName, "grpc-encoding", "gzip")
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Send(stream, request, 0, true); err != nil && !errors.Is(err, wire.ErrAnswered) {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	for _, stream := range streams {
		answer, err := conn.Answer(stream, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if want := strconv.Itoa(int(codes.Unimplemented)); answer.Status != want {
			t.Errorf("a compressed request got %+v, want %s", answer, want)
		}
	}
	a.serves()
	a.peak()
}

// The error for a client that compresses names the fix.
func TestCompressionErrorNamesTheFix(t *testing.T) {
	a := newAttacked(t, 0)
	_, err := a.honest.api.Submit(t.Context(), &pb.SubmitRequest{Producer: "billing", Id: "1"}, grpc.UseCompressor("gzip"))
	wantStatus(t, err, codes.Unimplemented, "send requests uncompressed")
}

// 32 requests of nearly 16 MiB arrive without their last bytes. Requests beyond the shared bound are refused at their
// beginning; smaller requests of others go through meanwhile.
func TestUnfinishedRequestsHoldBoundedMemory(t *testing.T) {
	a := newAttacked(t, 0)
	var attack sync.WaitGroup
	var mu sync.Mutex
	var held, refused int
	part := append(wire.Prefix(false, largeRequest), make([]byte, largeRequest-1024)...)
	for range 4 {
		conn := a.dial()
		for range 8 {
			stream, err := conn.Begin(pb.MessageHandlerService_SendHalfMessages_FullMethodName)
			if err != nil {
				t.Fatal(err)
			}
			attack.Go(func() {
				err := conn.Send(stream, part, 0, false)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					held++
					return
				}
				answer, err := conn.Answer(stream, time.Minute)
				if refused++; err != nil || answer.Status != strconv.Itoa(int(codes.ResourceExhausted)) {
					t.Errorf("a request without room got %+v, %v", answer, err)
				}
			})
		}
	}
	a.serves()
	attack.Wait()
	a.serves()
	if held == 0 || refused == 0 {
		t.Errorf("%d requests are held and %d refused, want some of both", held, refused)
	}
	a.peak()
}

// serveBeside demands that honest clients of another address are served while an attacker holds as much as one
// address may: a small message and a large request.
func (a *attacked) serveBeside(large int) {
	a.t.Helper()
	a.serves()
	ctx, cancel := context.WithTimeout(a.t.Context(), time.Minute)
	defer cancel()
	_, err := a.honest.api.SendHalfMessage(ctx, &pb.SendHalfMessageRequest{
		Producer: "billing", CallbackTarget: a.honest.target,
		Message: &pb.Message{Id: "large", RoutingKey: "bills", Body: make([]byte, large)},
	})
	if err != nil {
		a.t.Fatalf("the honest large request is refused: %v", err)
	}
}

// One address begins 22,000 calls and sends only their headers. Then another address announces 32 requests of
// 16 MiB.
func TestOneAddressCannotStarveOthers(t *testing.T) {
	a := newAttacked(t, 0)
	dial := func(from byte) *wire.RawConn {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
		conn, err := wire.DialRawFrom(dialer, a.coordinator.grpc)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		return conn
	}
	// read waits until the coordinator has read everything from the connection: a call to no method is answered.
	read := func(conn *wire.RawConn) {
		stream, err := conn.Begin("/none.None/None")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Answer(stream, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	for range 12 {
		conn := dial(2)
		for range 1900 {
			if _, err := conn.Begin(pb.MessageHandlerService_SendHalfMessage_FullMethodName); err != nil {
				t.Fatal(err)
			}
		}
		read(conn)
	}
	a.serves()
	for range 8 {
		conn := dial(3)
		for range 4 {
			stream, err := conn.Begin(pb.MessageHandlerService_SendHalfMessages_FullMethodName)
			if err != nil {
				t.Fatal(err)
			}
			err = conn.Send(stream, wire.Prefix(false, largeRequest), 0, false)
			if err != nil && !errors.Is(err, wire.ErrAnswered) {
				t.Fatal(err)
			}
		}
		read(conn)
	}
	a.serveBeside(512 << 10)
	a.coordinator.Says("request refused unread: too many unfinished calls", patience)
	a.coordinator.Says("request refused unread: too many announced bytes", patience)
	a.peak()
}

// Silent connections leave enough of the process's descriptors for Redis, RabbitMQ, probes and active clients.
func TestIdleConnectionsLeaveDescriptors(t *testing.T) {
	a := newAttacked(t, 256)
	attacker := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range 300 {
		// Each greets, and answers pings for ever. Being refused is as good.
		if conn, err := wire.DialRawFrom(attacker, a.coordinator.grpc); err == nil {
			t.Cleanup(conn.Close)
		}
		if conn, err := attacker.DialContext(t.Context(), "tcp", a.coordinator.http); err == nil {
			t.Cleanup(func() { conn.Close() })
		}
	}
	a.world.redis.CLI("CLIENT", "KILL", "TYPE", "normal") // the coordinator connects to Redis anew
	a.serves()
	a.coordinator.Says("connection refused: too many from one address", patience)
	for _, listener := range []string{"grpc", "http"} {
		if pageHolds(t, a.coordinator, "/metrics",
			`msghandler_connections_refused_total{listener="`+listener+`",reason="address"} 0`) {
			t.Errorf("the refused connections of %s are not in the metrics", listener)
		}
	}
}

// wantStatus demands a code, and a text in the status.
func wantStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if got := status.Convert(err); got.Code() != code || !strings.Contains(got.Message(), text) {
		t.Fatalf("got %v, want %v with %q", err, code, text)
	}
}
