package guard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/msghandler/msghandler/test/must"
)

// grpcOver is an admitted request of gRPC over HTTP, and its body.
func grpcOver(t *testing.T, c *connection, body []byte) (r *request, read io.Reader) {
	t.Helper()
	r = &request{Context: context.Background(), conn: c, further: furtherMessage}
	must.Succeed(t, r.enter(-1))
	return r, Announcing(r, io.NopCloser(bytes.NewReader(body)))
}

// framed is a message of gRPC that announces more than follows.
func framed(announced uint16, follows int) []byte {
	return append([]byte{0, 0, 0, byte(announced >> 8), byte(announced)}, make([]byte, follows)...)
}

func TestHTTPBodyIsAnnouncedByPrefix(t *testing.T) {
	t.Parallel()
	g := New(Config{Limits: Limits{Calls: 10, Bytes: 10_000, Request: 20_000}})
	c := connectFrom(t, g, "10.0.0.1")
	for name, tc := range map[string]struct {
		body    []byte
		arrives int
		held    int64
		err     error
	}{
		"allowed":       {framed(1000, 1000), 1005, 1000, nil},
		"empty":         {nil, 0, 0, nil},
		"two messages":  {append(framed(10, 10), framed(5000, 5000)...), 5, 10, errFurtherMessage},
		"without bytes": {framed(15_000, 15_000), 5, 10_001, nil},
		"too large":     {framed(30_000, 30_000), 5, 0, nil},
	} {
		other := &request{conn: c}
		if name == "without bytes" { // nothing is free
			c.acquireLocked(requestBytes, 10_001)
			other.bytes = 10_001
		}
		r, body := grpcOver(t, c, tc.body)
		got, err := io.ReadAll(io.MultiReader(io.LimitReader(body, 5), body))
		if len(got) != tc.arrives || !errors.Is(err, tc.err) {
			t.Errorf("%s: %d bytes arrived, %v; want %d, %v", name, len(got), err, tc.arrives, tc.err)
		}
		if held := g.budgets[requestBytes].used.Load(); held != tc.held || !r.announced {
			t.Errorf("%s: %d bytes are held, want %d; announced %t", name, held, tc.held, r.announced)
		}
		r.end()
		other.end()
		if held := g.budgets[requestBytes].used.Load() + g.budgets[unfinishedCalls].used.Load(); held > 0 {
			t.Errorf("%s: in the end %d are held", name, held)
		}
	}
}

// gRPC keeps a buffer for each read, so single bytes of a message must not be reads of their own.
func TestHTTPBodyComesInLargeParts(t *testing.T) {
	t.Parallel()
	g := New(Config{Limits: Limits{Calls: 10, Bytes: 10_000, Request: 20_000}})
	r := &request{Context: context.Background(), conn: connectFrom(t, g, "10.0.0.1"), further: furtherMessage}
	must.Succeed(t, r.enter(-1))
	sent := append(framed(1000, 1000), framed(10, 10)...)
	body := Announcing(r, io.NopCloser(iotest.OneByteReader(bytes.NewReader(sent))))
	var parts []int
	for buffer := make([]byte, 600); ; {
		n, err := body.Read(buffer)
		if errors.Is(err, io.EOF) {
			break
		}
		must.Succeed(t, err)
		parts = append(parts, n)
	}
	if want := []int{600, 405, 15}; !slices.Equal(parts, want) {
		t.Errorf("read in parts of %d bytes, want %d", parts, want)
	}
}

// gRPC behind an HTTP server keeps what a stream has not read yet.
func TestHTTPMessagesDoNotPileUp(t *testing.T) {
	t.Parallel()
	g := New(Config{Limits: Limits{Calls: 10, Bytes: 10_000, Request: 20_000}})
	r, body := grpcOver(t, connectFrom(t, g, "10.0.0.1"), slices.Repeat(framed(100, 100), 50))
	message := make([]byte, 105)
	for range 30 { // each is read before the next
		if _, err := io.ReadFull(body, message); err != nil {
			t.Fatal(err)
		}
		in := &incoming{request: &emptypb.Empty{}, of: r}
		must.Succeed(t, g.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(message[:0])}, in))
	}
	if rest, err := io.ReadAll(iotest.DataErrReader(io.LimitReader(body, 17*105))); err != nil || len(rest) == 0 {
		t.Errorf("%d bytes arrived, %v", len(rest), err)
	}
	if _, err := body.Read(message); !errors.Is(err, errUnread) {
		t.Errorf("after 17 messages that are not read: %v", err)
	}
}

// gRPC reads on when a request is answered unread.
func TestAnAnsweredRequestHoldsNothingAgain(t *testing.T) {
	t.Parallel()
	g := New(Config{Limits: Limits{Calls: 10, Bytes: 10_000, Request: 20_000}})
	r, body := grpcOver(t, connectFrom(t, g, "10.0.0.1"), framed(1000, 1000))
	r.end()
	if got, err := io.ReadAll(body); len(got) > 0 || err != nil {
		t.Errorf("%d bytes arrived, %v", len(got), err)
	}
	if held := g.budgets[requestBytes].used.Load(); held > 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// gRPC resets the deadlines of a connection after it has given the connection away.
func TestGRPCTouchesNoDispatchedConnection(t *testing.T) {
	t.Parallel()
	g := New(Config{})
	client, served := net.Pipe()
	defer client.Close()
	raw := &accepted{Conn: served}
	c := connectFrom(t, g, "10.0.0.1")
	c.Conn = raw
	given := make(chan net.Conn, 1)
	go func() {
		conn, _ := g.HTTP().Accept()
		given <- conn
	}()
	if err := g.http.dispatch(raw, c); !errors.Is(err, credentials.ErrConnDispatched) {
		t.Fatal(err)
	}
	conn := <-given
	must.Succeed(t, conn.SetReadDeadline(time.Now().Add(-time.Second)))
	_ = raw.SetDeadline(time.Time{}) // by gRPC
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the deadline of the HTTP server is gone: %v", err)
	}
	_ = g.HTTP().Close()
	if err := g.http.dispatch(raw, c); !errors.Is(err, errNotServing) {
		t.Errorf("after the end of the HTTP server: %v", err)
	}
}

// JSON may be larger than a request of gRPC, and counts like any other request.
func TestLargeJSONHoldsItsBytes(t *testing.T) {
	t.Parallel()
	g := New(Config{Limits: Limits{Calls: 10, Bytes: 100_000, Request: 20_000}})
	c := connectFrom(t, g, "10.0.0.1")
	first := &request{Context: context.Background(), conn: c}
	must.Succeed(t, first.enter(26_000))
	if held := g.budgets[requestBytes].used.Load(); held != 26_000 {
		t.Errorf("%d bytes are held", held)
	}
	second := &request{Context: context.Background(), conn: c}
	if err := second.enter(60_000); !errors.Is(err, ErrBytes) {
		t.Errorf("a request without room: %v", err)
	}
	first.end()
	if held := g.budgets[requestBytes].used.Load(); held != 0 {
		t.Errorf("in the end %d are held", held)
	}
}

// streamOf is a stream of a context, with a message that does not arrive before the end of hangs.
type streamOf struct {
	grpc.ServerStream
	ctx   context.Context
	hangs chan struct{}
}

// Context implements grpc.ServerStream.
func (s streamOf) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s streamOf) RecvMsg(any) error {
	<-s.hangs
	return io.EOF
}

// The handler of a stream may end while the body is being read, so only the HTTP server gives the bytes back.
func TestHTTPStreamsBytesOutliveItsHandler(t *testing.T) {
	t.Parallel()
	stopping, stop := context.WithCancel(t.Context())
	defer stop()
	g := New(Config{
		Limits:   Limits{Calls: 10, Bytes: 10_000, Request: 20_000},
		Stopping: stopping, Translate: func(err error) error { return err },
	})
	ctx := context.WithValue(t.Context(), httpConnKey{}, &httpConn{conn: connectFrom(t, g, "10.0.0.1")})
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody)
	admitted, end, err := g.AdmitHTTP(r, "/tail", 1000)
	must.Succeed(t, err)
	late, cancel := context.WithTimeout(admitted, 0)
	defer cancel()
	tail := streamOf{ctx: late, hangs: make(chan struct{})}
	err = g.InterceptStream(nil, tail, &grpc.StreamServerInfo{FullMethod: "/tail"},
		func(_ any, s grpc.ServerStream) error { return s.RecvMsg(nil) })
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the handler got %v", err)
	}
	if held := g.budgets[requestBytes].used.Load(); held != 1000 {
		t.Errorf("%d bytes are held while the body is being read", held)
	}
	close(tail.hangs)
	must.Succeed(t, g.Wait(t.Context()))
	if end(); g.budgets[requestBytes].used.Load() != 0 {
		t.Error("in the end bytes are held")
	}
}
