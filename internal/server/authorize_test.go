package server_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	"github.com/msghandler/msghandler/proto/certs"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// guarded serves with certificates, and returns the address.
func guarded(
	t *testing.T,
	a *certstest.Authority,
	rules access.Rules,
	edit ...func(*server.Config),
) (h *house, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	certFile, keyFile := a.Issue("127.0.0.1")
	source, err := certs.Open(certs.Files{Cert: certFile, Key: keyFile, CA: a.File}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	return openAt(t, listener, append(edit, func(c *server.Config) {
		c.Credentials, c.Access = source.Server(), authenticator(t, rules)
	})...), listener.Addr().String()
}

// everyone allows everything to each certificate of the tests.
var everyone = access.Rules{
	Admins: []string{"dns:*", "dns:*.*", "dns:*.*.*"}, Callers: []string{"dns:*", "dns:*.*", "dns:*.*.*"},
}

func authenticator(t testing.TB, rules access.Rules, sources ...access.Source) *access.Authenticator {
	t.Helper()
	made, err := access.NewAuthenticator(rules, sources...)
	must.Succeed(t, err)
	return made
}

func as(t *testing.T, a *certstest.Authority, address string, names ...string) *grpc.ClientConn {
	t.Helper()
	return connect(t, address, grpc.WithTransportCredentials(credentials.NewTLS(a.Client(names...))))
}

// Every call of both services is tried in every protocol, including calls of later versions.
func TestCertificatesDecideWhoMayCallWhat(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	h, address := guarded(t, a, access.Rules{
		Admins:    []string{"dns:*.ops.shop", "uri:spiffe://shop/ops/*"},
		CallersOf: map[string][]string{"orders": {"dns:orders.shop"}},
	})
	h.store.put("orders", "1", halfmsg.Dead)
	// Every request of producers begins with the producer. An allowed caller gets the other violations.
	empty := &msghandlerv1.SubmitRequest{Producer: "orders"}
	for who, c := range map[string]struct {
		names            []string
		produce, operate bool
	}{
		"the producer":         {[]string{"orders.shop"}, true, false},
		"another producer":     {[]string{"stock.shop"}, false, false},
		"an operator":          {[]string{"anna.ops.shop"}, false, true},
		"an operator, by URI":  {[]string{"10.0.0.1", "spiffe://shop/ops/anna"}, false, true},
		"neither, by a prefix": {[]string{"spiffe://shop/ops/anna/x", "orders.shop.evil", "ops.shop"}, false, false},
	} {
		conn := as(t, a, address, c.names...)
		for _, by := range waysWithTLS(t, a, address, c.names...) {
			for _, method := range msghandlerv1.MessageHandlerService_ServiceDesc.Methods {
				err := by.call("/msghandler.v1.MessageHandlerService/"+method.MethodName, empty)
				refused(t, who+": "+method.MethodName+" by "+by.name, err, !c.produce)
			}
			for _, method := range adminv1.AdminService_ServiceDesc.Methods {
				err := by.call("/msghandler.admin.v1.AdminService/"+method.MethodName, &emptypb.Empty{})
				refused(t, who+": "+method.MethodName+" by "+by.name, err, !c.operate)
			}
		}
		both := offeringBoth(t, a, address, c.names...)
		for _, stream := range adminv1.AdminService_ServiceDesc.Streams {
			tail(t, who+", offering both", both, stream.StreamName, c.operate)
		}
		for _, stream := range adminv1.AdminService_ServiceDesc.Streams {
			tail(t, who, conn, stream.StreamName, c.operate)
		}
		for _, method := range msghandlerv1.MessageHandlerService_ServiceDesc.Streams {
			attendAs(t, who, both, method.StreamName, c.produce)
			attendAs(t, who, conn, method.StreamName, c.produce)
		}
		if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Errorf("%s does not get the health: %v", who, err)
		}
		producers := msghandlerv1.NewMessageHandlerServiceClient(conn)
		_, err := producers.Submit(t.Context(), &msghandlerv1.SubmitRequest{Producer: "free", Id: "1"})
		wantCode(t, err, codes.PermissionDenied) // no caller is configured
	}
	if state := h.store.get("orders", "1").State; state != halfmsg.Dead {
		t.Errorf("the message was changed: %v", state)
	}
}

func tail(t *testing.T, who string, conn *grpc.ClientConn, method string, may bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true},
		"/"+adminv1.AdminService_ServiceDesc.ServiceName+"/"+method)
	must.Succeed(t, err)
	must.Succeed(t, stream.SendMsg(&emptypb.Empty{}))
	if may { // the stream begins, without moves
		if _, err := stream.Header(); err != nil {
			t.Errorf("%s: %s: %v", who, method, err)
		}
		return
	}
	refused(t, who+": "+method, stream.RecvMsg(&emptypb.Empty{}), true)
}

// attendAs opens a stream of a producer, which may say who it is.
func attendAs(t *testing.T, who string, conn *grpc.ClientConn, method string, may bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/"+msghandlerv1.MessageHandlerService_ServiceDesc.ServiceName+"/"+method)
	must.Succeed(t, err)
	must.Succeed(t, stream.SendMsg(helloOf("orders")))
	refused(t, who+": "+method, stream.RecvMsg(&msghandlerv1.AttendResponse{}), !may)
}

func refused(t *testing.T, what string, err error, want bool) {
	t.Helper()
	info, _ := reason(err)
	if got := status.Code(err) == codes.PermissionDenied && info.GetReason() == "CALLER_FORBIDDEN"; got != want {
		t.Errorf("%s: refused %t, want %t: %v", what, got, want, err)
	}
}

func TestARefusalNamesCallerAndKey(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	trail := &recorded{}
	_, address := guarded(t, a, access.Rules{
		Admins: []string{"dns:ops.shop"}, Callers: []string{"dns:orders.shop"},
	}, trail.keep)
	conn := as(t, a, address, "stock.shop")
	_, err := adminv1.NewAdminServiceClient(conn).GetStats(t.Context(), &adminv1.GetStatsRequest{})
	wantText(t, err, "certificate dns:stock.shop", "the admin API", "access.viewers")
	if said := trail.String(); !strings.Contains(said, "stock.shop") {
		t.Errorf("recorded %s", said)
	}
	_, err = msghandlerv1.NewMessageHandlerServiceClient(conn).SendHalfMessage(t.Context(), good("1"))
	wantText(t, err, "certificate dns:stock.shop", `"orders"`, "grpc.callers", "producers.NAME.callers")
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(status.Convert(err).Message(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// A client that connects and begins no handshake delays no stop.
func TestAStopWaitsForNoHandshake(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	for name, said := range map[string][]byte{
		"silent": nil, "begun": {22, 3, 1, 2, 0, 1}, "much": append([]byte{22, 3, 1, 2, 0}, bytes.Repeat([]byte{1}, 200)...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, address := guarded(t, a, everyone)
			conn, err := net.Dial("tcp", address)
			must.Succeed(t, err)
			defer conn.Close()
			if _, err := conn.Write(said); err != nil {
				t.Fatal(err)
			}
			ask := healthv1.NewHealthClient(as(t, a, address, "x"))
			// The answer shows that the earlier connection has been accepted.
			if _, err := ask.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // gRPC would give it ten
			defer cancel()
			if err := h.Stop(ctx); err != nil {
				t.Errorf("the stop waited: %v", err)
			}
		})
	}
}
