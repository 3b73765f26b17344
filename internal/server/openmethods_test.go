package server_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// openBound is how a method that needs no identity is held. Unary calls are held while their requests are not there
// yet, and streams while they are open.
type openBound struct {
	// first is the first message of a stream; nil for a unary method.
	first proto.Message
	// closes says that the client of a stream sends no more.
	closes bool
}

// openLimit is how many calls of open methods may be held.
const openLimit = 16

// openBounds are the methods that need no identity, each with its bound.
var openBounds = map[string]openBound{
	healthv1.Health_Check_FullMethodName: {},
	healthv1.Health_List_FullMethodName:  {},
	healthv1.Health_Watch_FullMethodName: {&healthv1.HealthCheckRequest{}, true},
	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName: {&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	}, false},
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	}, false},
}

// Each method that needs no identity has a bound for as long as its calls live: one connection cannot use it up, and
// what ends is given back. A new open method fails here until it has a row.
func TestOpenMethodsAreBounded(t *testing.T) {
	t.Parallel()
	for _, method := range open(t, func(c *server.Config) { c.Reflection = true }).Methods() {
		if _, _, isOpen, _ := server.NeedsOf(method); !isOpen {
			continue
		}
		bound, known := openBounds[method]
		if !known {
			t.Errorf("%s needs no identity, and has no bound in the table", method)
			continue
		}
		t.Run(strings.ReplaceAll(method[1:], "/", "."), func(t *testing.T) {
			t.Parallel()
			h := open(t, func(c *server.Config) {
				c.Reflection, c.Limits = true, server.Limits{Streams: openLimit}.WithCalls(openLimit)
				c.Access = authenticator(t, access.Rules{}, someTokens())
			})
			h.SetServing(true)
			address := h.conn.Target()
			held, refused := holdAll(t, address, method, bound, 4*openLimit)
			if held == 0 || held >= openLimit || refused.code != codes.ResourceExhausted {
				t.Fatalf("one connection holds %d of %d: %v", held, openLimit, refused.code)
			}
			other, beside := holdAll(t, address, method, bound, 1)
			if other != 1 {
				t.Error("another connection gets nothing beside it")
			}
			beside.end()
			refused.end()
			servers.Eventually(t, 20*time.Second, "the places of ended calls are given back", func() bool {
				again, after := holdAll(t, address, method, bound, 4*openLimit)
				after.end()
				return again >= held
			})
		})
	}
}

// holding are the calls of one connection.
type holding struct {
	code codes.Code
	end  func()
}

// holdAll begins calls on a connection of its own and leaves them open, until one is refused.
func holdAll(t *testing.T, address, method string, bound openBound, most int) (held int, h holding) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	h.end = func() { _ = conn.Close() }
	t.Cleanup(h.end)
	for ; held < most; held++ {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
		must.Succeed(t, err)
		answered := make(chan error, 1)
		if bound.first == nil { // a unary call whose request never comes has no answer, unless it is refused
			go func() { answered <- stream.RecvMsg(&emptypb.Empty{}) }()
			wait := 100 * time.Millisecond
			if held >= openLimit/2 { // the share of a connection is used up, so a refusal comes, however slow the machine
				wait = 20 * time.Second
			}
			select {
			case err = <-answered:
			case <-time.After(wait):
			}
		} else {
			_ = stream.SendMsg(bound.first) // a refused stream may have ended
			if bound.closes {
				_ = stream.CloseSend()
			}
			err = stream.RecvMsg(&emptypb.Empty{})
		}
		if err != nil {
			h.code = status.Code(err)
			return held, h
		}
	}
	return held, h
}

// poisonTokens is a source of identities that panics, as a reader of tokens may.
type poisonTokens struct{}

func (poisonTokens) Authenticate(context.Context, string) (access.Identity, error) { panic("poison") }

// No interceptor runs around the look at the identity before the body.
func TestPanicOfSourceIsError(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *server.Config) { c.Access = authenticator(t, access.Rules{}, poisonTokens{}) })
	for _, by := range h.waysWithToken(t, "", "any") {
		err := by.call(adminv1.AdminService_GetStats_FullMethodName, &adminv1.GetStatsRequest{})
		if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "poison") {
			t.Errorf("by %s: got %v", by.name, err)
		}
	}
}

// A caller without an identity is refused before the body of its request is decoded: an undecodable body changes
// nothing, and no refusal names the producer that the body claims.
func TestStrangersBodiesAreNotDecoded(t *testing.T) {
	t.Parallel()
	trail, reported := &recorded{}, &refusedCalls{}
	h := open(t, trail.keep, func(c *server.Config) {
		c.Access, c.Refused = authenticator(t, access.Rules{}, someTokens()), reported.add
	})
	for _, token := range []string{"", "unknown"} {
		for _, method := range h.Methods() {
			if _, _, isOpen, _ := server.NeedsOf(method); isOpen {
				continue
			}
			claimed := &msghandlerv1.SubmitRequest{Producer: "payroll"}
			err := h.conn.Invoke(withToken(t.Context(), token), method, claimed, &emptypb.Empty{})
			wantCode(t, err, codes.Unauthenticated)
			garbage := &msghandlerv1.Message{Body: []byte{0xff}, Id: "no-such-request"}
			err = h.conn.Invoke(withToken(t.Context(), token), method, garbage, &emptypb.Empty{})
			wantCode(t, err, codes.Unauthenticated)
		}
	}
	if said := trail.String(); strings.Contains(said, "payroll") || said == "[]" {
		t.Errorf("the audit trail names the claims of a stranger, or nothing: %s", said)
	}
	reported.want(t, "strangers")
}

// countedTokens count how often a token is looked up.
type countedTokens struct {
	knownTokens
	asked *atomic.Int32
}

func (c countedTokens) Authenticate(ctx context.Context, token string) (access.Identity, error) {
	c.asked.Add(1)
	return c.knownTokens.Authenticate(ctx, token)
}

func TestRefusedCallIsIdentifiedOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	trail := &recorded{}
	h := open(t, trail.keep, func(c *server.Config) {
		c.Access = authenticator(t, access.Rules{}, countedTokens{someTokens(), &asked})
	})
	for token, want := range map[string]codes.Code{
		"unknown": codes.Unauthenticated, "viewer": codes.PermissionDenied, "admin": codes.NotFound,
	} {
		asked.Store(0)
		_, err := h.operators.DiscardMessages(withToken(t.Context(), token), &adminv1.DiscardMessagesRequest{
			Selection: &adminv1.MessageSelection{Names: []*adminv1.MessageName{{Producer: "orders", Id: "1"}}},
		})
		if want != codes.NotFound {
			wantCode(t, err, want)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("%s is identified %d times", token, n)
		}
	}
	if said := trail.String(); !strings.Contains(said, "token:viewer") {
		t.Errorf("the refusal names no caller: %s", said)
	}
}
