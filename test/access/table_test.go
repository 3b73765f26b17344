package access

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/msghandler/msghandler/proto/certs"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// caller is a caller and the rights of the caller.
type caller struct {
	name string
	// cert is shown in the handshake; nil: none. token is shown in each call; empty: none.
	cert  *tls.Certificate
	token string
	// role is from 0, none, to 4, admin.
	role int
	// orders and stock say as which producer the caller may call.
	orders, stock bool
	// proved says that the caller has shown a valid credential.
	proved bool
}

// The roles.
const (
	none = iota
	viewer
	reader
	operator
	admin
)

// needed are the roles that the methods of operators need. The table repeats the server's table on purpose.
var needed = map[string]int{
	"GetStats": viewer, "ListMessages": viewer, "GetMessage": viewer, "TailMessages": viewer, "ListAudit": viewer,
	"GroupMessages": viewer, "FindMessages": viewer, "ListProblems": viewer, "AskProducer": viewer,
	"GetConfiguration": reader, "RetryMessages": operator, "DiscardMessages": admin,
	"ListFinished": viewer, "GetFinished": viewer, "ReplayMessages": operator,
	"ListDeadLetterQueues": viewer, "ListDeadLetters": viewer, "GetDeadLetter": viewer, "CountDeadLetters": viewer,
	"ReplayDeadLetters": operator, "DiscardDeadLetters": admin,
}

// cert is a certificate that the authority has issued.
func (c *coordinator) cert(edit func(*x509.Certificate), names ...string) *tls.Certificate {
	c.t.Helper()
	certFile, keyFile := c.authority.IssueEdited(edit, names...)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		c.t.Fatal(err)
	}
	return &pair
}

// callers are a caller of each kind.
func (c *coordinator) callers() []caller {
	c.t.Helper()
	revoked := c.token("revoked", "--role=admin")
	if out, status := programs.Run(c.t, "msghandler", nil, "token", "revoke", "revoked", "--file="+c.tokens); status != 0 {
		c.t.Fatalf("token revoke: %d, %s", status, out)
	}
	ops := c.cert(nil, "anna.ops.shop")
	viewing := c.token("dashboard", "--role=viewer")
	return []caller{
		{name: "anonymous"},
		{name: "a certificate without a rule", cert: c.cert(nil, "other.example"), proved: true},
		{name: "a producer's certificate", cert: c.cert(nil, "orders.shop"), proved: true, orders: true},
		{name: "a producer's SPIFFE id", cert: c.cert(nil, "spiffe://shop/stock"), proved: true, stock: true},
		{name: "a viewer's certificate", cert: c.cert(nil, "bob.view.shop"), proved: true, role: viewer},
		{name: "an admin's certificate", cert: ops, proved: true, role: admin},
		{name: "two labels for one", cert: c.cert(nil, "x.anna.ops.shop"), proved: true},
		{
			name: "a common name alone", cert: c.cert(func(cert *x509.Certificate) { cert.DNSNames = nil }, "carl"),
			proved: true, role: operator,
		},
		{
			name: "an admin's common name beside another name", cert: c.cert(named("anna.ops.shop"), "other.example"),
			proved: true,
		},
		{name: "an admin's common name beside an address", cert: c.cert(named("anna.ops.shop"), "10.0.0.1"), proved: true},
		{name: "an admin's e-mail name", cert: c.cert(named("x", "boss@ops.shop"), "other.example"), proved: true},
		{name: "a viewer's token", token: viewing, proved: true, role: viewer},
		{name: "a reader's token", token: c.token("reader", "--role=reader"), proved: true, role: reader},
		{name: "an operator's token", token: c.token("operator", "--role=operator"), proved: true, role: operator},
		{name: "a token with a rule", token: c.token("night-1", "--role=viewer"), proved: true, role: operator},
		{name: "an admin's token", token: c.token("admin", "--role=admin"), proved: true, role: admin},
		{name: "a producer's token", token: c.token("shop", "--producer=orders"), proved: true, orders: true},
		{name: "a revoked token", token: revoked},
		{name: "an unknown token", token: "secret-of-nobody"},
		{name: "an unknown token beside an admin's certificate", cert: ops, token: "secret-of-nobody"},
		{name: "a viewer's token beside an admin's certificate", cert: ops, token: viewing, proved: true, role: viewer},
		{
			name: "a JWT", token: c.issuer.JWT("anna", "shop", map[string]any{"roles": "operator", "producers": "stock"}),
			proved: true, role: operator, stock: true,
		},
		{name: "a JWT for another audience", token: c.issuer.JWT("anna", "bank", map[string]any{"roles": "admin"})},
	}
}

// wants is the answer to a call of a method, as the reason of its error; empty: the call is allowed.
func (c caller) wants(service, method, producer string) string {
	may := c.role >= needed[method]
	if service == "MessageHandlerService" {
		may = producer == "orders" && c.orders || producer == "stock" && c.stock
	}
	switch {
	case c.token != "" && !c.proved:
		return "UNAUTHENTICATED"
	case may:
		return ""
	case c.proved:
		return "CALLER_FORBIDDEN"
	}
	return "UNAUTHENTICATED"
}

// protocol calls a method for a producer, or for none, and returns the reason of a refusal.
type protocol struct {
	name string
	call func(method, producer string) (reason string)
}

// tls is the configuration of a caller's connections.
func (c *coordinator) tls(of caller, protocols ...string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.authority.Pool(), NextProtos: protocols}
	if of.cert != nil {
		config.Certificates = []tls.Certificate{*of.cert}
	}
	return config
}

func (c *coordinator) dial(of caller) *grpc.ClientConn {
	c.t.Helper()
	conn, err := grpc.NewClient(c.grpc, grpc.WithTransportCredentials(credentials.NewTLS(c.tls(of))))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// protocols are all ways to make a unary call.
func (c *coordinator) protocols(of caller) []protocol {
	c.t.Helper()
	conn := c.dial(of)
	http1 := &http.Transport{TLSClientConfig: c.tls(of, "http/1.1")}
	http2 := &http.Transport{TLSClientConfig: c.tls(of, "h2", "http/1.1"), ForceAttemptHTTP2: true}
	c.t.Cleanup(func() {
		http1.CloseIdleConnections()
		http2.CloseIdleConnections()
	})
	return []protocol{
		{"gRPC", func(method, producer string) string {
			// Every request of producers begins with the producer, as that of Submit.
			request := &pb.SubmitRequest{Producer: producer}
			return reasonOf(conn.Invoke(certs.WithToken(c.t.Context(), of.token), method, request, &emptypb.Empty{}))
		}},
		{"gRPC beside HTTP", c.post(of, http2, "application/grpc")},
		{"HTTP/1.1 with JSON", c.post(of, http1, "application/json")},
		{"HTTP/2 with JSON", c.post(of, http2, "application/json")},
		{"Connect with protobuf", c.post(of, http2, "application/proto")},
	}
}

// post returns calls over HTTP.
func (c *coordinator) post(of caller, transport http.RoundTripper, contentType string) func(string, string) string {
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	return func(method, producer string) string {
		body, err := proto.Marshal(&pb.SubmitRequest{Producer: producer})
		switch contentType {
		case "application/json":
			body, err = protojson.Marshal(&pb.SubmitRequest{Producer: producer})
		case "application/grpc":
			body = append([]byte{0, 0, 0, 0, byte(len(body))}, body...)
		}
		if err != nil {
			c.t.Fatal(err)
		}
		answer, content := c.send(client, of, method, contentType, body)
		if contentType == "application/grpc" {
			return reasonOf(statusOf(c.t, answer))
		}
		var failure struct{ Reason string }
		if answer.StatusCode == http.StatusOK {
			return ""
		}
		if err := json.Unmarshal(content, &failure); err != nil {
			c.t.Fatalf("%s: %d, %q: %v", method, answer.StatusCode, content, err)
		}
		want := map[string]int{"UNAUTHENTICATED": http.StatusUnauthorized, "CALLER_FORBIDDEN": http.StatusForbidden}
		if status := want[failure.Reason]; status != 0 && status != answer.StatusCode {
			c.t.Errorf("%s: %s has the status %d", method, failure.Reason, answer.StatusCode)
		}
		return refusal(failure.Reason)
	}
}

// send sends a request and reads the answer.
func (c *coordinator) send(
	client *http.Client, of caller, path, contentType string, body []byte,
) (answer *http.Response, content []byte) {
	c.t.Helper()
	url := "https://" + c.grpc + path
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	if of.token != "" {
		request.Header.Set("Authorization", "Bearer "+of.token)
	}
	if answer, err = client.Do(request); err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	if content, err = io.ReadAll(answer.Body); err != nil {
		c.t.Fatal(err)
	}
	return answer, content
}

// statusOf is the status of a call of gRPC over HTTP.
func statusOf(t testing.TB, answer *http.Response) error {
	t.Helper()
	text := answer.Trailer.Get("Grpc-Status-Details-Bin")
	if text == "" {
		text = answer.Header.Get("Grpc-Status-Details-Bin")
	}
	packed, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	st := &rpcstatus.Status{}
	if err := proto.Unmarshal(packed, st); err != nil {
		t.Fatal(err)
	}
	return status.ErrorProto(st)
}

// reasonOf is the reason of an error that refuses the caller; empty for any other error.
func reasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is {
			return refusal(info.GetReason())
		}
	}
	return ""
}

func refusal(reason string) string {
	if reason == "UNAUTHENTICATED" || reason == "CALLER_FORBIDDEN" {
		return reason
	}
	return ""
}

// methods are the methods of both services, from their description, so that a new method is tried too.
func methods() (all []protoreflect.MethodDescriptor) {
	for _, service := range []protoreflect.ServiceDescriptor{
		pb.File_msghandler_v1_msghandler_proto.Services().ByName("MessageHandlerService"),
		adminv1.File_msghandler_admin_v1_admin_proto.Services().ByName("AdminService"),
	} {
		of := service.Methods()
		for i := range of.Len() {
			all = append(all, of.Get(i))
		}
	}
	return all
}

func pathOf(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// Every identity is tried on every method in every protocol.
func TestIdentityDecidesEveryCall(t *testing.T) {
	t.Parallel()
	c := start(t)
	cells := 0
	for _, of := range c.callers() {
		c.awaitToken(of)
		protocols := c.protocols(of)
		for _, m := range methods() {
			service, method := string(m.Parent().Name()), string(m.Name())
			if _, known := needed[method]; service == "AdminService" && !known {
				t.Fatalf("enter the needs of %s into the table of this test", method)
			}
			producers := []string{""}
			if service == "MessageHandlerService" {
				producers = []string{"orders", "stock"}
			}
			for _, producer := range producers {
				want := of.wants(service, method, producer)
				if m.IsStreamingServer() {
					c.tryStream(of, m, producer, want)
					cells++
					continue
				}
				for _, by := range protocols {
					cells++
					if got := by.call(pathOf(m), producer); got != want {
						t.Errorf("%s: %s %s by %s: got %q, want %q", of.name, method, producer, by.name, got, want)
					}
				}
			}
		}
		c.tryOpenServices(of)
	}
	t.Logf("%d cells", cells)
}

// awaitToken waits until the coordinator has read the last change of its token file, and the keys of its issuer.
func (c *coordinator) awaitToken(of caller) {
	c.t.Helper()
	if of.token == "" {
		return
	}
	client := adminv1.NewAdminServiceClient(c.dial(caller{token: of.token}))
	servers.Eventually(c.t, 30*time.Second, of.name+" is known", func() bool {
		_, err := client.GetStats(certs.WithToken(c.t.Context(), of.token), &adminv1.GetStatsRequest{})
		return (status.Code(err) == codes.Unauthenticated) != of.proved && status.Code(err) != codes.Unavailable
	})
}

// tryStream opens a stream by gRPC, and a stream of answers by HTTP too.
func (c *coordinator) tryStream(of caller, m protoreflect.MethodDescriptor, producer, want string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(certs.WithToken(c.t.Context(), of.token), time.Minute)
	defer cancel()
	stream, err := c.dial(of).NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, pathOf(m))
	if err != nil {
		c.t.Fatal(err)
	}
	var first proto.Message = &emptypb.Empty{}
	if m.IsStreamingClient() {
		first = &pb.AttendRequest{Kind: &pb.AttendRequest_Hello{Hello: &pb.AttendHello{Producer: producer, Instance: "x"}}}
	}
	_ = stream.SendMsg(first) // a refused stream may have ended
	if !m.IsStreamingClient() {
		_ = stream.CloseSend() // so does the client of a tail
	}
	if want == "" && !m.IsStreamingClient() {
		_, err = stream.Header() // a tail without moves has no answer
	} else {
		err = stream.RecvMsg(&emptypb.Empty{})
	}
	if got := reasonOf(err); got != want || want == "" && err != nil {
		c.t.Errorf("%s: %s %s by gRPC: got %q (%v), want %q", of.name, m.Name(), producer, got, err, want)
	}
	if m.IsStreamingClient() || want == "" {
		return
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: c.tls(of, "http/1.1"), DisableKeepAlives: true}}
	_, content := c.send(client, of, pathOf(m), "application/connect+json", []byte("\x00\x00\x00\x00\x02{}"))
	if !strings.Contains(string(content), want) {
		c.t.Errorf("%s: %s by HTTP: got %q, want %q", of.name, m.Name(), content, want)
	}
}

// tryOpenServices calls the services that answer everyone.
func (c *coordinator) tryOpenServices(of caller) {
	c.t.Helper()
	conn, ctx := c.dial(of), certs.WithToken(c.t.Context(), of.token)
	if _, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}); err != nil {
		c.t.Errorf("%s: health: %v", of.name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err == nil {
		err = stream.Send(&reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
		})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		c.t.Errorf("%s: reflection: %v", of.name, err)
	}
}

// Paths that are almost the path of a method reach no method, for any caller.
func TestAlmostMethodsReachNothing(t *testing.T) {
	t.Parallel()
	c := start(t)
	of := caller{name: "admin", token: c.token("all", "--role=admin", "--producer=*")}
	of.proved = true
	c.awaitToken(of)
	request := &adminv1.GetStatsRequest{}
	for _, token := range []string{"", of.token} {
		of.token = token
		conn := c.dial(of)
		transport := &http.Transport{TLSClientConfig: c.tls(of, "h2", "http/1.1"), ForceAttemptHTTP2: true}
		client := &http.Client{Transport: transport}
		for _, path := range []string{
			"/", "//", "/msghandler.admin.v1.AdminService", "/msghandler.admin.v1.AdminService/",
			"//msghandler.admin.v1.AdminService/GetStats",
			"/msghandler.admin.v1.AdminService//GetStats", "/msghandler.admin.v1.AdminService/GetStats/", "/GetStats",
			"/msghandler.admin.v1.AdminService/getstats", "/msghandler.admin.v1.AdminService/Nothing",
			"/msghandler.v1.Nothing/GetStats",
			"/./msghandler.admin.v1.AdminService/GetStats", "/x/../msghandler.admin.v1.AdminService/GetStats",
			"msghandler.admin.v1.AdminService/GetStats",
		} {
			err := conn.Invoke(certs.WithToken(t.Context(), of.token), path, request, &emptypb.Empty{})
			if code := status.Code(err); code == codes.OK || code == codes.Internal && path[0] == '/' {
				t.Errorf("%q by gRPC: %v", path, err)
			}
			if path[0] != '/' {
				continue // no client of HTTP sends it
			}
			for _, contentType := range []string{"application/json", "application/grpc"} {
				answer, content := c.send(client, of, path, contentType, []byte("\x00\x00\x00\x00\x00"))
				reached := answer.StatusCode == http.StatusOK && contentType == "application/json" ||
					answer.Trailer.Get("Grpc-Status") == "0"
				if reached || strings.Contains(string(content), "states") {
					t.Errorf("%q as %s is answered: %d, %q", path, contentType, answer.StatusCode, content)
				}
			}
		}
	}
}
