package callback_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/proto/certs"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// serveHTTP runs a producer on a free port of the loopback and returns its URL.
func serveHTTP(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// answering answers each call in the same way.
func answering(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// askedBy is the body of a call.
type askedBy struct {
	Producer string   `json:"producer"`
	IDs      []string `json:"ids"`
	Final    *bool    `json:"final"`
}

// committedHTTP answers COMMITTED for everything.
func committedHTTP(w http.ResponseWriter, r *http.Request) {
	var asked askedBy
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	confirmations := make([]map[string]string, 0, len(asked.IDs))
	for _, id := range asked.IDs {
		confirmations = append(confirmations, map[string]string{"id": id, "verdict": "VERDICT_COMMITTED"})
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_ = json.NewEncoder(w).Encode(map[string]any{"confirmations": confirmations, "more": 1})
}

func TestHTTPCallsHaveTheirForm(t *testing.T) {
	t.Parallel()
	type seen struct {
		line, body string
		header     http.Header
	}
	calls := make(chan seen, 3)
	target := halfmsg.Target{Producer: "orders", Address: serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls <- seen{r.Method + " " + r.RequestURI, string(body), r.Header}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, ` {"confirmations":[{"id":"1","verdict":"VERDICT_COMMITTED"},`+
			`{"verdict":"VERDICT_UNAVAILABLE","id":"2","note":{"id":"3"}}]}`+"\n")
	}) + "/msg/"}
	c := client(t, callback.Config{Token: func(string) string { return "s3cret" }, Timeout: time.Minute})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-1-2-01", "secret-of-others", "x")
	verdicts, err := c.Confirm(ctx, target, []string{"1", "2", "3"}, false)
	if want := (map[string]halfmsg.Verdict{
		"1": halfmsg.VerdictCommitted, "2": halfmsg.VerdictUnavailable, "3": halfmsg.VerdictUnknown,
	}); err != nil || !maps.Equal(verdicts, want) {
		t.Fatalf("got %v, %v", verdicts, err)
	}
	must.Succeed(t, c.DeleteBusiness(ctx, target, []string{"1"}))
	api, release, err := c.Open(target)
	must.Succeed(t, err)
	defer release()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := api.Confirm(ctx, &msghandlerv1.ConfirmRequest{Producer: "orders", Final: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []seen{
		{line: "POST /msg/confirm", body: `{"producer":"orders","ids":["1","2","3"],"final":false}`},
		{line: "POST /msg/deleteBusiness", body: `{"producer":"orders","ids":["1"]}`},
		{line: "POST /msg/confirm", body: `{"producer":"orders","ids":[],"final":true}`},
	} {
		got := <-calls
		if got.line != want.line || got.body != want.body {
			t.Errorf("got %s with %s", got.line, got.body)
		}
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Authorization": "Bearer s3cret", "Traceparent": "00-1-2-01",
			"Secret-Of-Others": "", "Accept-Encoding": "",
		} {
			if is := strings.Join(got.header[name], "|"); is != value {
				t.Errorf("%s: %s is %q, want %q", got.line, name, is, value)
			}
		}
		if left, err := strconv.Atoi(got.header.Get("Connect-Timeout-Ms")); err != nil || left < 1 || left > 60_000 {
			t.Errorf("%s: the deadline is %q", got.line, got.header.Get("Connect-Timeout-Ms"))
		}
	}
}

func TestHTTPRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Int32
	elsewhere := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		followed.Add(1)
		committedHTTP(w, r)
	})
	for _, status := range []int{301, 302, 303, 307, 308} {
		url := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere+"/login?token=s3cret", status)
		})
		_, err := client(t, callback.Config{}).Confirm(t.Context(),
			halfmsg.Target{Producer: "orders", Address: url}, []string{"1"}, false)
		var failed *callback.CallError
		if !errors.As(err, &failed) || failed.Reached || !strings.Contains(err.Error(), elsewhere) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%d: got %v", status, err)
		}
	}
	if n := followed.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

func TestHTTPDeadlineEndsACall(t *testing.T) {
	t.Parallel()
	drip := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for r.Context().Err() == nil { // as fast as it goes: no read is late, and the body never ends
			if _, err := io.WriteString(w, " "); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // net/http sees the end of a connection only then
		<-r.Context().Done()
	}
	for name, handler := range map[string]http.HandlerFunc{"hangs": hang, "drips": drip} {
		url := serveHTTP(t, handler)
		c := client(t, callback.Config{Timeout: 200 * time.Millisecond})
		_, err := c.Confirm(t.Context(), halfmsg.Target{Producer: "orders", Address: url}, []string{"1"}, false)
		var failed *callback.CallError
		if !errors.As(err, &failed) || failed.Code() != codes.DeadlineExceeded || failed.Reached ||
			!strings.HasSuffix(err.Error(), ": no answer within 200ms") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer func() { _ = mute.Close() }()
	c := client(t, callback.Config{Timeout: 200 * time.Millisecond})
	to := halfmsg.Target{Producer: "orders", Address: "https://" + mute.Addr().String()}
	_, err = c.Confirm(t.Context(), to, []string{"1"}, false)
	if err == nil || !strings.Contains(err.Error(), "waiting for connections to become ready") {
		t.Errorf("nobody answers the handshake: got %v", err)
	}
}

// A connection that becomes another protocol has no deadline of the call any more: nothing is read there.
func TestHTTPUpgradeEndsACall(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	url := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the client closes the connection
		_ = conn.Close()
		close(released)
	})
	c := client(t, callback.Config{Timeout: 30 * time.Second})
	_, err := c.Confirm(t.Context(), halfmsg.Target{Producer: "orders", Address: url}, []string{"1"}, false)
	var failed *callback.CallError
	if !errors.As(err, &failed) || failed.Code() != codes.Unimplemented || failed.Reached {
		t.Errorf("got %v", err)
	}
	<-released
}

func TestHTTPAnswerIsBounded(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat(" ", 1<<20)
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		code    codes.Code
	}{
		"body":             {answering(200, "application/json", huge+`{"confirmations":[]}`), codes.ResourceExhausted},
		"body of an error": {answering(500, "text/plain", "why"+huge+huge), codes.Internal},
		"headers": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Much", strings.Repeat("x", 20<<10))
			committedHTTP(w, r)
		}, codes.Unavailable},
	} {
		_, err := client(t, callback.Config{Timeout: 30 * time.Second}).Confirm(t.Context(),
			halfmsg.Target{Producer: "orders", Address: serveHTTP(t, tc.handler)}, []string{"1"}, false)
		var failed *callback.CallError
		if !errors.As(err, &failed) || failed.Code() != tc.code || len(err.Error()) > 1000 {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestHTTPConnectionIsReused(t *testing.T) {
	t.Parallel()
	var conns atomic.Int32
	var failing atomic.Bool
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if failing.Load() {
			answering(500, "text/plain", strings.Repeat("x", 100_000))(w, r)
			return
		}
		committedHTTP(w, r)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	target := halfmsg.Target{Producer: "orders", Address: server.URL}
	c := client(t, callback.Config{Timeout: 30 * time.Second})
	for i := range 20 {
		failing.Store(i%2 == 1)
		if _, err := c.Confirm(t.Context(), target, ids(3), false); (err == nil) == failing.Load() {
			t.Fatal(err)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for calls in turn", n)
	}
	failing.Store(false)
	for range 5 { // a server may close an idle connection at any time
		server.CloseClientConnections()
		if _, err := c.Confirm(t.Context(), target, ids(3), false); err != nil {
			t.Fatalf("after the server closed the connection: %v", err)
		}
	}
}

// callsEach serves so many calls on each connection, and resets the connection at the first byte of another call.
func callsEach(t *testing.T, calls int) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	serve := func(conn net.Conn) {
		defer func() { _ = conn.Close() }()
		// A call of 500 ids does not fit in, so its sender notices the reset in the middle of it.
		_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
		_ = conn.(*net.TCPConn).SetLinger(0)
		reader := bufio.NewReader(conn)
		for range calls {
			r, err := http.ReadRequest(reader)
			if err != nil {
				return
			}
			answer := httptest.NewRecorder()
			committedHTTP(answer, r)
			result := answer.Result()
			result.ContentLength = int64(answer.Body.Len())
			_ = result.Write(conn)
		}
		_, _ = reader.Peek(1)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return "http://" + listener.Addr().String()
}

// longIDs are as many ids as a call may have, of about the longest form.
func longIDs() []string {
	all := ids(500)
	for i := range all {
		all[i] += strings.Repeat("x", 120)
	}
	return all
}

// As causes of a message the texts must be equal.
func TestHTTPBrokenConnectionHasOneText(t *testing.T) {
	t.Parallel()
	to := halfmsg.Target{Producer: "orders", Address: callsEach(t, 0)}
	c := client(t, callback.Config{Timeout: 30 * time.Second})
	for range 20 {
		_, err := c.Confirm(t.Context(), to, longIDs(), false)
		if err == nil || !strings.HasSuffix(err.Error(), ": the connection was closed before the end of the answer") {
			t.Fatalf("got %v", err)
		}
	}
	to.Address = closesEach(t)
	for range 500 { // net/http has three errors for this, and a fourth under load
		_, err := c.Confirm(t.Context(), to, []string{"1"}, false)
		if err == nil || !strings.HasSuffix(err.Error(), ": the connection was closed before the end of the answer") {
			t.Fatalf("got %v", err)
		}
	}
}

// closesEach closes each connection at once, and returns its URL.
func closesEach(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	return "http://" + listener.Addr().String()
}

func TestHTTPCallSurvivesClosedConnection(t *testing.T) {
	t.Parallel()
	c := client(t, callback.Config{Timeout: 30 * time.Second})
	to := halfmsg.Target{Producer: "orders", Address: callsEach(t, 1)}
	many := longIDs()
	for range 4 {
		if verdicts, err := c.Confirm(t.Context(), to, many, false); err != nil || len(verdicts) != len(many) {
			t.Fatalf("got %d verdicts, %v", len(verdicts), err)
		}
	}
}

// A call that crashes a worker of its producer is repeated once, and not on each idle connection.
func TestBrokenHTTPCallIsRepeatedOnce(t *testing.T) {
	t.Parallel()
	const conns = 8
	var crashing atomic.Bool
	var crashes atomic.Int32
	var together sync.WaitGroup
	together.Add(conns)
	to := halfmsg.Target{Producer: "orders", Address: serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if crashing.Load() {
			crashes.Add(1)
			panic(http.ErrAbortHandler)
		}
		together.Done()
		together.Wait() // each call has a connection of its own
		committedHTTP(w, r)
	})}
	c := client(t, callback.Config{Timeout: 30 * time.Second})
	var calls sync.WaitGroup
	for range conns {
		calls.Go(func() {
			if _, err := c.Confirm(t.Context(), to, []string{"1"}, false); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	crashing.Store(true)
	if _, err := c.Confirm(t.Context(), to, []string{"1"}, false); err == nil || crashes.Load() != 2 {
		t.Errorf("got %v after %d calls", err, crashes.Load())
	}
}

func TestCloseEndsHTTPCalls(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	url := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(entered)
		<-r.Context().Done()
	})
	c := client(t, callback.Config{Timeout: time.Hour})
	target := halfmsg.Target{Producer: "orders", Address: url}
	answered := make(chan error, 1)
	go func() {
		_, err := c.Confirm(t.Context(), target, []string{"1"}, false)
		answered <- err
	}()
	<-entered
	c.Close()
	var failed *callback.CallError
	if err := <-answered; !errors.As(err, &failed) || failed.Code() != codes.Canceled {
		t.Fatalf("got %v", err)
	}
	if _, err := c.Confirm(t.Context(), target, []string{"1"}, false); err == nil {
		t.Fatal("a closed client calls")
	}
}

// The connections of a target that is dropped end, and those of all targets end with the client.
func TestHTTPConnectionsEndWithTheirTarget(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(committedHTTP))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c := client(t, callback.Config{Timeout: 30 * time.Second}.WithMaxTargets(1))
	for _, path := range []string{"/a", "/b"} {
		to := halfmsg.Target{Producer: "p", Address: server.URL + path}
		if _, err := c.Confirm(t.Context(), to, []string{"1"}, false); err != nil {
			t.Fatal(err)
		}
	}
	<-closed
	c.Close()
	<-closed
}

func TestHTTPFailedConnectionIsUnavailable(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	closed := listener.Addr().String()
	_ = listener.Close()
	cut := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.Close()
	})
	reset := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	})
	for name, tc := range map[string]struct{ address, want string }{
		"nobody listens": {"http://" + closed, "dial " + closed + ": connect: connection refused"},
		"reset":          {reset, "Unavailable: the connection was closed before the end of the answer"},
		"closed at once": {cut, "the connection was closed before the end of the answer"},
		"serves gRPC":    {"http://" + serve(t, &business{confirm: committed}), "does not speak HTTP/1.1"},
	} {
		c := client(t, callback.Config{Timeout: time.Minute})
		_, err := c.Confirm(t.Context(), halfmsg.Target{Producer: "orders", Address: tc.address}, []string{"1"}, false)
		var failed *callback.CallError
		if !errors.As(err, &failed) || failed.Code() != codes.Unavailable || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// resolving is a resolver that finds every name of the domain svc at an address, and no other name.
func resolving(to [4]byte) *net.Resolver {
	return resolvingBy(func() [4]byte { return to })
}

// resolvingBy is resolving with an address that changes.
func resolvingBy(to func() [4]byte) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go answerDNS(theirs, to())
		return ours, nil
	}}
}

// A producer moves: its name stands for another address from now on, and its first process ends.
func TestMovedNameIsResolvedAnew(t *testing.T) {
	t.Parallel()
	var last atomic.Int32
	last.Store(1)
	config := callback.Config{Allow: []string{"*:*"}, Networks: []string{"127.0.0.0/8"}, Timeout: 30 * time.Second}
	c := client(t, config.WithResolver(resolvingBy(func() [4]byte { return [4]byte{127, 0, 0, byte(last.Load())} })))
	port := "0"
	for host := int32(1); host <= 2; host++ {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:%s", host, port))
		must.Succeed(t, err)
		_, port, _ = net.SplitHostPort(listener.Addr().String())
		server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(committedHTTP)}}
		server.Start()
		last.Store(host)
		to := halfmsg.Target{Producer: "orders", Address: "http://orders.svc:" + port}
		if _, err := c.Confirm(t.Context(), to, []string{"1"}, false); err != nil {
			t.Errorf("at the address %d: %v", host, err)
		}
		server.CloseClientConnections()
		server.Close()
	}
}

// answerDNS answers one question as DNS does by TCP: messages after their length in two bytes.
func answerDNS(conn net.Conn, to [4]byte) {
	defer func() { _ = conn.Close() }()
	length := make([]byte, 2)
	if _, err := io.ReadFull(conn, length); err != nil {
		return
	}
	asked := make([]byte, int(length[0])<<8|int(length[1]))
	var message dnsmessage.Message
	if _, err := io.ReadFull(conn, asked); err != nil || message.Unpack(asked) != nil {
		return
	}
	message.Response, message.Additionals = true, nil
	question := message.Questions[0]
	switch {
	case !strings.HasSuffix(question.Name.String(), ".svc."):
		message.RCode = dnsmessage.RCodeNameError
	case question.Type == dnsmessage.TypeA:
		message.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 1},
			Body:   &dnsmessage.AResource{A: to},
		}}
	}
	answer, err := message.Pack()
	if err != nil {
		return
	}
	_, _ = conn.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...))
}

func TestHTTPForbiddenAddressIsNotDialled(t *testing.T) {
	t.Parallel()
	var called atomic.Int32
	url := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		called.Add(1)
		committedHTTP(w, r)
	})
	_, port, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	to := halfmsg.Target{Producer: "orders", Address: "http://orders.svc:" + port}
	config := callback.Config{Allow: []string{"*:*"}, Timeout: 30 * time.Second}
	config = config.WithResolver(resolving([4]byte{127, 0, 0, 1}))
	_, err := client(t, config).Confirm(t.Context(), to, []string{"1"}, false)
	if err == nil || !strings.Contains(err.Error(), "callbacks.networks") || called.Load() != 0 {
		t.Errorf("got %v after %d calls", err, called.Load())
	}
	config.Networks = []string{"127.0.0.0/8"}
	if _, err := client(t, config).Confirm(t.Context(), to, []string{"1"}, false); err != nil {
		t.Error(err)
	}
	to.Address = "http://orders.nowhere"
	_, err = client(t, config).Confirm(t.Context(), to, []string{"1"}, false)
	var failed *callback.CallError
	if !errors.As(err, &failed) || !failed.Unresolved() || !strings.Contains(err.Error(), "does not resolve") {
		t.Errorf("a name unknown to DNS: %v", err)
	}
}

func TestHTTPProxyOfEnvironmentIsIgnored(t *testing.T) {
	var proxied atomic.Int32
	t.Setenv("HTTP_PROXY", serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		proxied.Add(1)
		committedHTTP(w, r)
	}))
	_, port, _ := strings.Cut(strings.TrimPrefix(serveHTTP(t, committedHTTP), "http://"), ":")
	config := callback.Config{Allow: []string{"*:*"}, Networks: []string{"127.0.0.0/8"}, Timeout: 30 * time.Second}
	c := client(t, config.WithResolver(resolving([4]byte{127, 0, 0, 1})))
	to := halfmsg.Target{Producer: "orders", Address: "http://orders.svc:" + port}
	if _, err := c.Confirm(t.Context(), to, []string{"1"}, false); err != nil || proxied.Load() != 0 {
		t.Errorf("got %v with %d calls of the proxy", err, proxied.Load())
	}
}

func TestHTTPSWantsItsCertificate(t *testing.T) {
	t.Parallel()
	a, foreign := certstest.NewAuthority(t), certstest.NewAuthority(t)
	files := certs.Files{CA: a.File}
	files.Cert, files.Key = a.Issue("coordinator.shop")
	source, err := certs.Open(files, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	serveTLS := func(a *certstest.Authority, names ...string) string {
		server := httptest.NewUnstartedServer(http.HandlerFunc(committedHTTP))
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		server.TLS = a.Server(names...) // asks for a certificate of the authority
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.URL
	}
	plain := serveHTTP(t, committedHTTP)
	var seen handshakes
	with := callback.Config{
		Handshake: seen.note, Timeout: 30 * time.Second, ClientTLS: func() *tls.Config { return source.ClientConfig("") },
	}
	secured, elsewhere := serveTLS(a, "127.0.0.1"), serveTLS(a, "10.0.0.1", "orders.shop")
	for name, tc := range map[string]struct {
		config  callback.Config
		address string
		// want is in the error; empty: it answers.
		want string
	}{
		"secured":              {with, secured, ""},
		"for another host":     {with, elsewhere, "not 127.0.0.1"},
		"of another authority": {with, serveTLS(foreign, "127.0.0.1"), "unknown authority"},
		"not secured":          {with, "https" + strings.TrimPrefix(plain, "http"), "handshake"},
		"without settings":     {callback.Config{Timeout: 30 * time.Second}, serveTLS(a, "127.0.0.1"), "unknown authority"},
	} {
		got, err := client(t, tc.config).Confirm(t.Context(),
			halfmsg.Target{Producer: "orders", Address: tc.address}, []string{"1"}, true)
		if tc.want == "" {
			if err != nil || got["1"] != halfmsg.VerdictCommitted {
				t.Errorf("%s: got %v, %v", name, got, err)
			}
			continue
		}
		var failed *callback.CallError
		if !errors.As(err, &failed) || failed.Code() != codes.Unavailable || !strings.Contains(err.Error(), tc.want) ||
			!certs.Unmet(err.Error()) {
			t.Errorf("%s: got %v, %v; want unreachable for %q", name, got, err, tc.want)
		}
	}
	seen.expect(t, secured, elsewhere)
}

func TestDemandedTLSRefusesHTTP(t *testing.T) {
	t.Parallel()
	config := callback.Config{
		Allow: []string{"orders:*"}, Secure: func(producer string) bool { return producer == "orders" },
	}
	c := client(t, config)
	for _, tc := range []struct {
		producer, target string
		refused          bool
	}{
		{"orders", "http://orders/x", true},
		{"orders", "https://orders/x", false},
		{"orders", "orders:9000", false},
		{"stock", "http://orders/x", false},
	} {
		_, err := c.Resolve(tc.producer, tc.target)
		if errors.Is(err, halfmsg.ErrForbidden) != tc.refused || !tc.refused && err != nil {
			t.Errorf("%s at %s: got %v", tc.producer, tc.target, err)
		}
	}
	config.Targets = map[string]string{"orders": "http://orders/x"}
	if _, err := callback.New(config.WithDefaults()); !errors.Is(err, halfmsg.ErrForbidden) {
		t.Errorf("a configured target of http: got %v", err)
	}
}

// The addresses at which no producer may be called are refused on connecting, by gRPC and HTTP alike.
func TestBothTransportsRefuseForbiddenAddresses(t *testing.T) {
	t.Parallel()
	var called atomic.Int32
	url := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		called.Add(1)
		committedHTTP(w, r)
	})
	own := netip.MustParseAddrPort(strings.TrimPrefix(url, "http://"))
	for _, to := range []netip.AddrPort{own, netip.MustParseAddrPort("169.254.169.254:80")} {
		config := callback.Config{
			Allow: []string{"*:*"}, Networks: []string{"0.0.0.0/0"}, Timeout: 30 * time.Second,
			Own: func() []netip.AddrPort { return []netip.AddrPort{own} },
		}
		config = config.WithDialOptions(named(to.String())).WithResolver(resolving(to.Addr().As4()))
		c, port := client(t, config), strconv.Itoa(int(to.Port()))
		for _, address := range []string{"orders.svc:" + port, "http://orders.svc:" + port} {
			_, err := c.Confirm(t.Context(), halfmsg.Target{Producer: "orders", Address: address}, []string{"1"}, false)
			if err == nil || !strings.Contains(err.Error(), "never call") || called.Load() != 0 {
				t.Errorf("%s: got %v after %d calls", address, err, called.Load())
			}
		}
		if _, err := c.Resolve("orders", to.String()); !errors.Is(err, halfmsg.ErrForbidden) {
			t.Errorf("the target %s: %v", to, err)
		}
	}
}
