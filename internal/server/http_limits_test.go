package server_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// rawHTTP is a connection on which a test sends requests in parts.
type rawHTTP struct {
	net.Conn
	in *bufio.Reader
}

// dialHTTP connects from 127.0.0.N.
func (h *house) dialHTTP(t *testing.T, n byte) rawHTTP {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, n)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", h.conn.Target())
	must.Succeed(t, err)
	return newRawHTTP(t, conn)
}

func newRawHTTP(t *testing.T, conn net.Conn) rawHTTP {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	return rawHTTP{conn, bufio.NewReader(conn)}
}

// say sends a part of a request.
func (c rawHTTP) say(t *testing.T, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(c, format, args...); err != nil {
		t.Fatal(err)
	}
}

// answer reads the answer to a request.
func (c rawHTTP) answer(t *testing.T) reply {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	got, err := http.ReadResponse(c.in, &http.Request{Method: http.MethodPost})
	must.Succeed(t, err)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	must.Succeed(t, err)
	return reply{got.StatusCode, got.Header, body}
}

// announced are the headers of a request of so many bytes, whose client waits until the server asks for the body.
func announced(size int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
		"Expect: 100-continue\r\n\r\n", sendHalf, size)
}

// HTTP requests share the budgets of announced bytes, and hold them until they end.
func TestHTTPRequestsHoldAnnouncedBytes(t *testing.T) {
	t.Parallel()
	h, conn, refused := openRaw(t, server.Limits{Bytes: 4 << 20})
	first := h.dialHTTP(t, 1)
	first.say(t, "%s", announced(2<<20))
	if got := first.answer(t); got.status != http.StatusContinue {
		t.Fatalf("the first got %v", got)
	}
	second := h.dialHTTP(t, 1)
	second.say(t, "%s", announced(2<<20))
	if got := second.answer(t); got.status != http.StatusTooManyRequests || got.field("reason") != "TOO_MANY_CALLS" ||
		got.header.Get("Retry-After") != "1" {
		t.Errorf("the second got %v", got)
	}
	if reason := <-refused; reason != "bytes" {
		t.Errorf("refused because of %s", reason)
	}
	if hasRoom(t, conn, 2<<20) {
		t.Error("gRPC has room for bytes that HTTP holds")
	}
	h.alive(t)
	_ = first.Close()
	eventually(t, "the first has given its bytes back", func() bool { return hasRoom(t, conn, 2<<20) })
}

// A request over the limit is refused unread, and so is one that does not say its length and goes on.
func TestLargeHTTPRequestsAreRefusedUnread(t *testing.T) {
	t.Parallel()
	h := open(t)
	over := h.dialHTTP(t, 1)
	over.say(t, "%s", announced(100<<20))
	if got := over.answer(t); got.status != http.StatusRequestEntityTooLarge ||
		got.field("code") != "invalid_argument" || got.field("reason") != "REQUEST_TOO_LARGE" {
		t.Errorf("got %v", got)
	}
	chunked := func(size int) reply {
		c := h.dialHTTP(t, 1)
		c.say(t, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n", sendHalf)
		c.say(t, "Transfer-Encoding: chunked\r\n\r\n")
		body := fmt.Sprintf(`{"producer":"configured","message":{"id":"%d","routingKey":"q"%s}}`,
			size, strings.Repeat(" ", size))
		c.say(t, "%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		return c.answer(t)
	}
	if got := chunked(60 << 10); got.status != http.StatusOK {
		t.Errorf("without a length: %v", got)
	}
	if got := chunked(64 << 10); got.status != http.StatusLengthRequired || got.field("reason") != "LENGTH_REQUIRED" {
		t.Errorf("without a length, and longer: %v", got)
	}
}

func TestLargeHTTPHeadersAreRefused(t *testing.T) {
	t.Parallel()
	h := open(t)
	for size, want := range map[int]bool{15 << 10: true, 40 << 10: false} {
		c := h.dialHTTP(t, 1)
		c.say(t, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: %s\r\n\r\n", strings.Repeat("x", size))
		got, _ := io.ReadAll(c) // what the server has not read makes the end a reset
		if taken := strings.Contains(string(got), "PATH_UNKNOWN"); taken != want {
			t.Errorf("headers of %d bytes are taken: %t; got %q", size, taken, got)
		}
	}
}

func TestTooManyHTTPCallsAreRefused(t *testing.T) {
	t.Parallel()
	h, _, refused := openRaw(t, server.Limits{}.WithCalls(4))
	for range 2 {
		c := h.dialHTTP(t, 1)
		c.say(t, "%s", announced(100))
		if got := c.answer(t); got.status != http.StatusContinue {
			t.Fatalf("got %v", got)
		}
	}
	for range 10 {
		c := h.dialHTTP(t, attacker)
		c.say(t, "%s", announced(100))
		if got := c.answer(t); got.status == http.StatusTooManyRequests {
			if reason := <-refused; reason != "calls" {
				t.Errorf("refused because of %s", reason)
			}
			return
		}
	}
	t.Error("no call was refused")
}

// openBubbleHTTP serves in fake time, and returns a connection.
func openBubbleHTTP(t *testing.T, edit ...func(*server.Config)) (h *house, conn rawHTTP) {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	h = openAt(t, listener, edit...)
	dialed, err := listener.DialContext(t.Context())
	must.Succeed(t, err)
	return h, newRawHTTP(t, dialed)
}

// What does not arrive is cut: the headers after ten seconds, the body after half a minute or at the deadline of the
// call, the next request after the idle time.
func TestSlowHTTPRequestsAreCut(t *testing.T) {
	t.Parallel()
	const good = `{"producer":"orders","id":"none"}`
	begin := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n",
		msghandlerv1.MessageHandlerService_Submit_FullMethodName, len(good))
	headers := begin + "\r\n"
	for name, tc := range map[string]struct {
		said  string
		after time.Duration
		gets  string
	}{
		"nothing":     {"", 10 * time.Second, ""},
		"headers":     {"POST / HTTP/1.1\r\nHost: x", 10 * time.Second, ""},
		"body":        {headers + good[:5], 30 * time.Second, "HTTP/1.1 408 "},
		"no body":     {headers, 30 * time.Second, "REQUEST_TOO_SLOW"},
		"deadline":    {begin + "Connect-Timeout-Ms: 2000\r\n\r\n", 2 * time.Second, "REQUEST_TOO_SLOW"},
		"not another": {headers + good, 10 * time.Minute, "MESSAGE_NOT_FOUND"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, conn := openBubbleHTTP(t)
				began := time.Now()
				conn.say(t, "%s", tc.said)
				_ = conn.SetReadDeadline(began.Add(time.Hour))
				got, err := io.ReadAll(conn)
				if err != nil || !strings.Contains(string(got), tc.gets) {
					t.Fatalf("the client got %q, %v; want %q and the end", got, err, tc.gets)
				}
				if took := time.Since(began); took < tc.after || took > tc.after+11*time.Second {
					t.Errorf("the client was cut after %s, want %s", took, tc.after)
				}
			})
		})
	}
}

// A stop ends what waits by HTTP, and finishes what is in flight.
func TestAStopEndsHTTPCalls(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.store.put("orders", "waits", halfmsg.Pending)
	post := func(method, body string) chan reply {
		got := make(chan reply, 1)
		client := httpClient(t)
		go func() {
			got <- do(t, client, h.url()+method, []byte(body), func(r *http.Request) { r.Header.Set("Content-Type", jsonType) })
		}()
		return got
	}
	waiting := post(msghandlerv1.MessageHandlerService_Submit_FullMethodName,
		`{"producer":"orders","id":"waits","wait":"WAIT_DONE"}`)
	eventually(t, "the call waits", func() bool { return len(h.taken()) == 1 })
	store := h.hold()
	reading := post(adminv1.AdminService_GetStats_FullMethodName, `{}`) // the store's batches do not wait for it
	<-store.entered
	idle := h.dialHTTP(t, 1)

	var released atomic.Bool
	stopped := make(chan error, 1)
	go func() {
		err := h.Stop(t.Context())
		if !released.Load() {
			t.Error("stopped with a call in flight")
		}
		stopped <- err
	}()
	if got := <-waiting; got.status != http.StatusServiceUnavailable || got.field("reason") != "STOPPING" {
		t.Errorf("the waiting call got %v", got)
	}
	if _, err := idle.in.ReadByte(); err == nil {
		t.Error("the idle connection got something")
	}
	eventually(t, "the port accepts no connections", func() bool {
		conn, err := net.Dial("tcp", h.conn.Target())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	select {
	case err := <-h.served:
		t.Fatalf("Serve ended with a call in flight: %v", err)
	case <-stopped:
	default:
	}
	released.Store(true)
	store.letGo()
	if got := <-reading; got.status != http.StatusOK {
		t.Errorf("the call in flight got %v", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop: %v", err)
	}
}

func TestIdleHTTPConnectionsHinderNobody(t *testing.T) {
	t.Parallel()
	h := open(t)
	for i := range 1000 {
		c := h.dialHTTP(t, 1)
		if c.say(t, "POST "); i%2 == 0 {
			continue // it never says more
		}
		c.say(t, "%s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", sendHalf)
		if got := c.answer(t); got.status != http.StatusUnsupportedMediaType {
			t.Fatalf("got %v", got)
		}
	}
	h.alive(t)
	if got := h.postJSON(t, adminv1.AdminService_GetStats_FullMethodName, `{}`); got.status != http.StatusOK {
		t.Errorf("got %v", got)
	}
}

// A client is asked to close an old connection.
func TestOldHTTPConnectionsEnd(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *server.Config) { c.ConnectionAge = time.Nanosecond })
	c := h.dialHTTP(t, 1)
	c.say(t, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	got := c.answer(t)
	if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after %v the connection got %v", got, err)
	}
}

// tailHeaders are the headers of a tail with a body of so many bytes.
func tailHeaders(size int, more string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+json\r\n"+
		"Content-Length: %d\r\n%s\r\n", adminv1.AdminService_TailMessages_FullMethodName, size, more)
}

// untilClosed reads all that a connection gets until the server closes it, and how long that takes.
func (c rawHTTP) untilClosed(t *testing.T) (got string, after time.Duration) {
	t.Helper()
	began := time.Now()
	_ = c.SetReadDeadline(began.Add(time.Hour))
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("got %q, %v", all, err)
	}
	return string(all), time.Since(began)
}

// The deadline of a call ends the reading of its body. Otherwise the body would go on filling memory that the budget
// has given to other calls.
func TestDeadlineEndsReadingOfTail(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"small": 1000, "large": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, conn := openBubbleHTTP(t)
				prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(size-5))
				conn.say(t, "%s%s", tailHeaders(size, "Connect-Timeout-Ms: 50\r\n"), prefix)
				got, after := conn.untilClosed(t)
				if !strings.Contains(got, `"code":"deadline_exceeded"`) || after > 5*time.Second {
					t.Errorf("after %s the tail had got %q", after, got)
				}
			})
		})
	}
}

// A stop does not wait for the body of a tail.
func TestStopEndsReadingOfTail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, conn := openBubbleHTTP(t)
		conn.say(t, "%s\x00", tailHeaders(1000, ""))
		synctest.Wait()
		began := time.Now()
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		got, _ := conn.untilClosed(t)
		if after := time.Since(began); !strings.Contains(got, `"code":"unavailable"`) || after > 5*time.Second {
			t.Errorf("after %s the tail had got %q", after, got)
		}
	})
}

// A request that is answered unread does not hold its call and bytes until its body arrives.
func TestAnswersDoNotWaitForBody(t *testing.T) {
	t.Parallel()
	const size = 200_000 // net/http reads bodies up to 256 KiB before it answers
	for name, tc := range map[string]struct{ said, gets string }{
		"forbidden tail":  {tailHeaders(size, ""), "UNAUTHENTICATED"},
		"compressed tail": {tailHeaders(size, "Content-Encoding: gzip\r\n"), "COMPRESSED"},
		"tail unframed":   {tailHeaders(size, "") + "\x07\x00\x00\x00\x00", "NOT_FRAMED"},
		"description":     {"GET /openapi.yaml HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", "swagger: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, conn := openBubbleHTTP(t, func(c *server.Config) {
					if name == "forbidden tail" {
						c.Access = authenticator(t, access.Rules{Admins: []string{"dns:boss"}})
					}
				})
				conn.say(t, "%s", tc.said)
				if got, after := conn.untilClosed(t); !strings.Contains(got, tc.gets) || after > 5*time.Second {
					t.Errorf("after %s the client had got %q, want %q", after, got, tc.gets)
				}
			})
		})
	}
}
