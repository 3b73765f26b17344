package server_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	"github.com/msghandler/msghandler/proto/certs"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// offeringBoth is a client of gRPC that offers HTTP/1.1 as well, as those on top of a client of HTTP do.
func offeringBoth(t *testing.T, a *certstest.Authority, address string, names ...string) *grpc.ClientConn {
	t.Helper()
	config := a.Client(names...)
	config.NextProtos = []string{"http/1.1"} // gRPC adds h2
	return connect(t, address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
}

// httpOver is a client of HTTP that offers protocols; proto is what it must get.
func httpOver(t *testing.T, config *tls.Config, proto string) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: proto == "HTTP/2.0"}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: protocolCheck{t, transport, proto}}
}

// protocolCheck fails a test whose requests go by another version of HTTP.
type protocolCheck struct {
	t         *testing.T
	transport http.RoundTripper
	want      string
}

// RoundTrip implements http.RoundTripper.
func (p protocolCheck) RoundTrip(r *http.Request) (*http.Response, error) {
	got, err := p.transport.RoundTrip(r)
	if err == nil && got.Proto != p.want {
		p.t.Errorf("the call went by %s, want %s", got.Proto, p.want)
	}
	return got, err
}

// waysWithTLS are all protocols, for a client with a certificate for names.
func waysWithTLS(t *testing.T, a *certstest.Authority, address string, names ...string) []way {
	t.Helper()
	http11 := a.Client(names...)
	http11.NextProtos = []string{"http/1.1"}
	byGRPC := func(conn *grpc.ClientConn) func(string, proto.Message) error {
		return func(method string, in proto.Message) error {
			return conn.Invoke(t.Context(), method, in, &msghandlerv1.SendHalfMessageResponse{})
		}
	}
	byHTTP := func(client *http.Client) func(string, proto.Message) error {
		return func(method string, in proto.Message) error {
			body, err := proto.Marshal(in)
			must.Succeed(t, err)
			return post(t, client, "https://"+address+method, protoType, body).err(t)
		}
	}
	return []way{
		{"gRPC", byGRPC(as(t, a, address, names...))},
		{"gRPC, offering both", byGRPC(offeringBoth(t, a, address, names...))},
		{"HTTP without ALPN", byHTTP(httpOver(t, a.Client(names...), "HTTP/1.1"))},
		{"HTTP/1.1", byHTTP(httpOver(t, http11, "HTTP/1.1"))},
		{"HTTP/2, offering both", byHTTP(httpOver(t, a.Client(names...), "HTTP/2.0"))},
	}
}

// The record of a change names the certificate of the caller in every protocol.
func TestRecordNamesTheCertificate(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	trail := &recorded{}
	h, address := guarded(t, a, everyone, trail.keep)
	for i, by := range waysWithTLS(t, a, address, "anna.ops.shop") {
		h.store.put("orders", "1", halfmsg.Dead)
		if err := by.call(adminv1.AdminService_DiscardMessages_FullMethodName, &adminv1.DiscardMessagesRequest{
			Selection: &adminv1.MessageSelection{Names: []*adminv1.MessageName{{Producer: "orders", Id: "1"}}},
		}); err != nil {
			t.Errorf("%s: %v", by.name, err)
		}
		records := trail.String()
		if strings.Count(records, `By:dns:anna.ops.shop`) != i+1 || strings.Count(records, `From:127.0.0.1:`) != i+1 {
			t.Errorf("%s: recorded %s", by.name, records)
		}
	}
}

// A client without a certificate gets as far by HTTP as by gRPC: nowhere.
func TestHTTPNeedsTheClientsCertificate(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	_, address := guarded(t, a, everyone)
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		got, err := httpOver(t, a.Client(), proto).Post("https://"+address, jsonType, http.NoBody)
		if err == nil {
			_ = got.Body.Close()
			t.Errorf("%s: got %s", proto, got.Status)
		}
	}
}

// Behind the HTTP server gRPC has its health, its tails, its details of errors, and the same budgets.
func TestGRPCOfClientsOfferingBoth(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	h, address := guarded(t, a, everyone, func(c *server.Config) { c.Limits.Bytes = 4 << 20 })
	conn := offeringBoth(t, a, address, "x")
	producers := msghandlerv1.NewMessageHandlerServiceClient(conn)
	if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	bad := good("a b")
	_, err := producers.SendHalfMessage(t.Context(), bad)
	wantCode(t, err, codes.InvalidArgument)
	if got := fields(err); len(got) != 1 || got[0] != "message.id" {
		t.Errorf("the fields are %q", got)
	}
	_, err = producers.SendHalfMessage(t.Context(), good("1"), grpc.UseCompressor("gzip"))
	wantCode(t, err, codes.Unimplemented)

	store := h.hold()
	large := good("large")
	large.Message.Body = make([]byte, 1<<20)
	large.Message.Headers = map[string]string{"a": strings.Repeat("x", 8<<10)}
	batch := &msghandlerv1.SendHalfMessagesRequest{
		Producer: "configured", Messages: []*msghandlerv1.Message{large.GetMessage(), good("2").GetMessage()},
	}
	batch.Messages[1].Body = make([]byte, 1<<20)
	sent := make(chan error, 1)
	go func() {
		_, err := producers.SendHalfMessages(t.Context(), batch)
		sent <- err
	}()
	select {
	case <-store.entered:
	case err := <-sent:
		t.Fatal(err)
	}
	_, err = msghandlerv1.NewMessageHandlerServiceClient(offeringBoth(t, a, address, "x")).
		SendHalfMessages(t.Context(), batch)
	wantCode(t, err, codes.ResourceExhausted)
	if info, retry := reason(err); info.GetReason() != "TOO_MANY_CALLS" || !retry {
		t.Errorf("got %v, retry %t", err, retry)
	}
	store.letGo()
	if err := <-sent; err != nil {
		t.Errorf("the first large request got %v", err)
	}
	over := &msghandlerv1.SendHalfMessagesRequest{Messages: []*msghandlerv1.Message{{Body: make([]byte, 20<<20)}}}
	_, err = producers.SendHalfMessages(t.Context(), over)
	wantCode(t, err, codes.InvalidArgument)
}

// A graceful stop ends the waits of gRPC behind the HTTP server, and finishes what is in flight.
func TestAStopEndsGRPCBehindHTTP(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	h, address := guarded(t, a, everyone)
	conn := offeringBoth(t, a, address, "x")
	producers := msghandlerv1.NewMessageHandlerServiceClient(conn)
	tail, err := adminv1.NewAdminServiceClient(conn).TailMessages(t.Context(), &adminv1.TailMessagesRequest{})
	if err == nil {
		_, err = tail.Header()
	}
	must.Succeed(t, err)
	store := h.hold()
	sent := make(chan error, 1)
	go func() {
		_, err := producers.SendHalfMessage(t.Context(), good("1"))
		sent <- err
	}()
	<-store.entered
	stopped := make(chan error, 1)
	go func() { stopped <- h.Stop(t.Context()) }()
	for err == nil { // the message in flight may be told before
		_, err = tail.Recv()
	}
	wantCode(t, err, codes.Unavailable)
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a call in flight: %v", err)
	default:
	}
	store.finish(t, sent, stopped)
}

// JSON by HTTP/2, as curl sends it with TLS: a request without a length, and an answer with one.
func TestJSONByHTTP2(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	_, address := guarded(t, a, everyone)
	client := httpOver(t, a.Client("x"), "HTTP/2.0")
	body, send := io.Pipe()
	go func() {
		_, _ = io.WriteString(send, `{"producer":"configured","message":{"id":"1","routingKey":"q"}}`)
		_ = send.Close()
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+sendHalf, body)
	must.Succeed(t, err)
	r.Header.Set("Content-Type", jsonType)
	got, err := client.Do(r)
	must.Succeed(t, err)
	defer got.Body.Close()
	var answer struct{ State string }
	if err := json.NewDecoder(got.Body).Decode(&answer); err != nil || answer.State != "STATE_PENDING" {
		t.Errorf("got %s, %v, %v", got.Status, answer, err)
	}
}

// What says no word after the handshake of TLS is closed as soon as the server stops.
func TestStopLeavesSilentHTTPClients(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	h, address := guarded(t, a, everyone)
	conn, err := tls.Dial("tcp", address, a.Client("x"))
	must.Succeed(t, err)
	defer conn.Close()
	if err := h.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection got something")
	}
}

// openBubbleTLS serves with certificates in fake time, and returns how to dial.
func openBubbleTLS(t *testing.T, a *certstest.Authority) (dial func(context.Context) (net.Conn, error)) {
	t.Helper()
	certFile, keyFile := a.Issue("coordinator.shop")
	source, err := certs.Open(certs.Files{Cert: certFile, Key: keyFile, CA: a.File}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	listener := bufconn.Listen(1 << 20)
	openAt(t, listener, func(c *server.Config) { c.Credentials = source.Server() })
	return listener.DialContext
}

// A body that does not arrive by HTTP/2 is answered in time, whatever its protocol.
func TestSlowHTTP2RequestsAreCut(t *testing.T) {
	t.Parallel()
	within := func(t *testing.T, began time.Time) {
		t.Helper()
		if took := time.Since(began); took < 30*time.Second || took > 41*time.Second {
			t.Errorf("the call was given %s", took)
		}
	}
	t.Run("JSON", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			a := certstest.NewAuthority(t)
			dial := openBubbleTLS(t, a)
			transport := &http.Transport{
				TLSClientConfig: a.Client("x"), ForceAttemptHTTP2: true,
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			}
			defer transport.CloseIdleConnections()
			body, end := io.Pipe()
			defer end.Close()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://coordinator.shop"+sendHalf, body)
			must.Succeed(t, err)
			r.Header.Set("Content-Type", jsonType)
			began := time.Now()
			got, err := transport.RoundTrip(r)
			must.Succeed(t, err)
			defer got.Body.Close()
			if got.StatusCode != http.StatusRequestTimeout || got.ProtoMajor != 2 {
				t.Errorf("got %s %s", got.Proto, got.Status)
			}
			within(t, began)
		})
	})
	t.Run("gRPC", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			a := certstest.NewAuthority(t)
			dial := openBubbleTLS(t, a)
			config := a.Client("x")
			config.NextProtos, config.ServerName = []string{"http/1.1"}, "coordinator.shop"
			conn := connect(t, "passthrough:///here", grpc.WithTransportCredentials(credentials.NewTLS(config)),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))
			began := time.Now()
			stream := begin(t, conn, sendHalf)
			wantCode(t, stream.RecvMsg(&msghandlerv1.SendHalfMessageResponse{}), codes.Unavailable)
			within(t, began)
		})
	})
}

// Over HTTP/2 the connection outlasts a tail whose body was not read to its end.
func TestHTTP2DeadlineEndsTailReading(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	_, address := guarded(t, a, everyone)
	client := httpOver(t, a.Client("anna"), "HTTP/2.0")
	for range 10 {
		body, unsent := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"https://"+address+adminv1.AdminService_TailMessages_FullMethodName, body)
		must.Succeed(t, err)
		r.ContentLength = 1000
		r.Header.Set("Content-Type", "application/connect+json")
		r.Header.Set("Connect-Timeout-Ms", "10")
		got, err := client.Do(r)
		must.Succeed(t, err)
		text, err := io.ReadAll(got.Body)
		_ = errors.Join(got.Body.Close(), unsent.Close())
		if err != nil || !strings.Contains(string(text), "deadline_exceeded") {
			t.Errorf("got %q, %v", text, err)
		}
	}
}

// A stream by gRPC over the HTTP server may have as many messages as it likes, as long as it reads them.
func TestLongStreamByGRPCOverHTTP(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	_, address := guarded(t, a, everyone, func(c *server.Config) { c.Reflection = true })
	talk, err := reflectionv1.NewServerReflectionClient(offeringBoth(t, a, address, "anna")).
		ServerReflectionInfo(t.Context())
	must.Succeed(t, err)
	list := &reflectionv1.ServerReflectionRequest_ListServices{}
	for range 100 {
		err := talk.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: list})
		if err == nil {
			_, err = talk.Recv()
		}
		must.Succeed(t, err)
	}
}
