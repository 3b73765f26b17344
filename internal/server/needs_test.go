package server_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/server"
	"github.com/msghandler/msghandler/proto/certs"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// A method of a later version fails here until the table says what the method needs.
func TestTableHoldsEveryMethod(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *server.Config) { c.Reflection = true })
	methods := h.Methods()
	for _, method := range methods {
		role, asProducer, isOpen, known := server.NeedsOf(method)
		needs := 0
		for _, each := range []bool{role != access.NoRole, asProducer, isOpen} {
			if each {
				needs++
			}
		}
		if !known || needs != 1 {
			t.Errorf("%s: known %t, with %d needs; each method has a single need", method, known, needs)
		}
		ours := strings.HasPrefix(method, "/msghandler.")
		if isOpen == ours {
			t.Errorf("%s is open: %t", method, isOpen)
		}
	}
	if n := server.KnownMethods(); n != len(methods) {
		t.Errorf("the table holds %d methods, and %d are served", n, len(methods))
	}
}

// Only the full name of a method finds its row.
func TestOtherNamesOfMethodsAreRefused(t *testing.T) {
	t.Parallel()
	all := access.Identity{Kind: access.Token, Name: "token:x", Role: access.Admin, Producers: []string{"*"}}
	for _, method := range open(t).Methods() {
		service, name, _ := strings.Cut(method[1:], "/")
		for _, other := range []string{
			"", "/", "//", method[1:], "/" + method, method + "/", "/" + service + "//" + name, "/" + service + "/",
			"/" + name, name, strings.ToLower(method), method + " ", "/" + service + "/%53ubmit", "/./" + method[1:],
		} {
			if server.Permits(all, other, &msghandlerv1.SubmitRequest{Producer: "orders"}) == nil {
				t.Errorf("%q is allowed", other)
			}
		}
		if _, _, isOpen, _ := server.NeedsOf(method); isOpen {
			continue
		}
		if err := server.Permits(all, method, &msghandlerv1.SubmitRequest{Producer: "orders"}); err != nil {
			t.Errorf("%s: %v", method, err)
		}
		if server.Permits(access.Identity{}, method, &msghandlerv1.SubmitRequest{}) == nil {
			t.Errorf("no role is allowed %s", method)
		}
	}
}

// knownTokens is a source of the tokens that a test knows.
type knownTokens map[string]access.Identity

// Authenticate implements access.Source.
func (k knownTokens) Authenticate(_ context.Context, token string) (access.Identity, error) {
	if i, known := k[token]; known {
		return i, nil
	}
	return access.Identity{}, access.ErrNotMine
}

// tokenOf is the identity of a token with a name.
func tokenOf(name string, role access.Role, producers ...string) access.Identity {
	return access.Identity{
		Kind: access.Token, Name: "token:" + name, Names: []string{"token:" + name}, Role: role, Producers: producers,
	}
}

// someTokens has a token for each role, and one of a producer.
func someTokens() knownTokens {
	return knownTokens{
		"viewer": tokenOf("viewer", access.Viewer), "reader": tokenOf("reader", access.Reader),
		"operator": tokenOf("operator", access.Operator), "admin": tokenOf("admin", access.Admin),
		"producer": tokenOf("producer", access.NoRole, "orders"),
	}
}

// Every call of every protocol needs what the table says.
func TestTokensDecideWhoMayCallWhat(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *server.Config) { c.Access = authenticator(t, access.Rules{}, someTokens()) })
	for token, role := range map[string]access.Role{
		"": access.NoRole, "unknown": access.NoRole, "producer": access.NoRole, "viewer": access.Viewer,
		"reader": access.Reader, "operator": access.Operator, "admin": access.Admin,
	} {
		for _, by := range h.waysWithToken(t, "", token) {
			for _, method := range h.Methods() {
				needed, asProducer, isOpen, _ := server.NeedsOf(method)
				if isOpen || isStream(method) {
					continue
				}
				want, reasonOf := codes.OK, ""
				switch {
				case token == "" || token == "unknown":
					want, reasonOf = codes.Unauthenticated, "UNAUTHENTICATED"
				case asProducer && token != "producer", !asProducer && role < needed:
					want, reasonOf = codes.PermissionDenied, "CALLER_FORBIDDEN"
				}
				request := &msghandlerv1.SubmitRequest{}
				if asProducer {
					request.Producer = "orders"
				}
				err := by.call(method, request)
				info, _ := reason(err)
				allowed := !slices.Contains([]codes.Code{codes.Unauthenticated, codes.PermissionDenied}, status.Code(err))
				if allowed != (want == codes.OK) || !allowed && (status.Code(err) != want || info.GetReason() != reasonOf) {
					t.Errorf("%q: %s by %s: %v, want %s", token, method, by.name, err, want)
				}
				if err != nil && strings.Contains(err.Error(), "unknown\"") {
					t.Errorf("the error quotes the token: %v", err)
				}
			}
		}
	}
}

func isStream(method string) bool {
	return strings.HasSuffix(method, "/TailMessages") || strings.HasSuffix(method, "/Attend")
}

// A viewer sees what a message is, and not what it says.
func TestOnlyReadersSeeBodies(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *server.Config) { c.Access = authenticator(t, access.Rules{}, someTokens()) })
	request := good("1")
	request.Message.Headers = map[string]string{"card": "4111"}
	ctx := withToken(t.Context(), "producer")
	if _, err := h.producers.SendHalfMessage(ctx, request); err != nil {
		t.Fatal(err)
	}
	for token, sees := range map[string]bool{"viewer": false, "reader": true, "operator": true, "admin": true} {
		ctx := withToken(t.Context(), token)
		one, err := h.operators.GetMessage(ctx, &adminv1.GetMessageRequest{Producer: "orders", Id: "1"})
		must.Succeed(t, err)
		list, err := h.operators.ListMessages(ctx,
			&adminv1.ListMessagesRequest{Filter: &adminv1.MessageFilter{State: msghandlerv1.State_STATE_PENDING}})
		if err != nil || len(list.GetRecords()) != 1 {
			t.Fatal(list, err)
		}
		found, err := h.operators.FindMessages(ctx, &adminv1.FindMessagesRequest{Id: "1"})
		must.Succeed(t, err)
		for _, record := range slices.Concat(list.GetRecords(), found.GetRecords(),
			[]*adminv1.MessageRecord{one.GetRecord()}) {
			m := record.GetMessage()
			if (len(m.GetBody()) > 0) != sees || (len(m.GetHeaders()) > 0) != sees || m.GetId() != "1" ||
				m.GetRoutingKey() != "paid" {
				t.Errorf("%s sees %v", token, m)
			}
		}
		_, err = h.operators.ListMessages(ctx, // a filter that would tell what is in the headers
			&adminv1.ListMessagesRequest{
				Filter: &adminv1.MessageFilter{State: msghandlerv1.State_STATE_PENDING, Header: "card=4111"},
			})
		if refused := status.Code(err) == codes.PermissionDenied; refused == sees {
			t.Errorf("%s searches headers: %v", token, err)
		}
		_, err = h.operators.ListFinished(ctx, &adminv1.ListFinishedRequest{
			Filter: &adminv1.FinishedFilter{Header: "card=4111"},
		})
		if refused := status.Code(err) == codes.PermissionDenied; refused == sees {
			t.Errorf("%s searches headers of finished messages: %v", token, err)
		}
	}
}

// The console calls in this process, and needs the same roles.
func TestCallsInTheProcessNeedRoles(t *testing.T) {
	t.Parallel()
	h := open(t)
	for _, role := range []access.Role{access.NoRole, access.Viewer, access.Reader, access.Operator, access.Admin} {
		ctx := access.With(t.Context(), tokenOf("x", role))
		for _, request := range []proto.Message{
			&adminv1.GetMessageRequest{}, &adminv1.ListMessagesRequest{}, &adminv1.GetStatsRequest{},
			&adminv1.GetConfigurationRequest{}, &adminv1.ListFinishedRequest{}, &adminv1.GetFinishedRequest{},
			&adminv1.ReplayMessagesRequest{}, &adminv1.RetryMessagesRequest{}, &adminv1.DiscardMessagesRequest{},
			&adminv1.ListDeadLetterQueuesRequest{}, &adminv1.ListDeadLettersRequest{}, &adminv1.GetDeadLetterRequest{},
			&adminv1.CountDeadLettersRequest{}, &adminv1.ReplayDeadLettersRequest{}, &adminv1.DiscardDeadLettersRequest{},
			&adminv1.ListProblemsRequest{},
		} {
			name := string(request.ProtoReflect().Descriptor().Name())
			method := strings.TrimSuffix(name, "Request")
			needed, _, _, _ := server.NeedsOf("/msghandler.admin.v1.AdminService/" + method)
			if err := invoke(ctx, h.Operators(), request); (status.Code(err) == codes.PermissionDenied) != (role < needed) {
				t.Errorf("%s as %s: %v", method, role, err)
			}
		}
	}
}

// Streams are opened, or refused with a token that does not allow them.
func TestTokensDecideWhoMayOpenStreams(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *server.Config) { c.Access = authenticator(t, access.Rules{}, someTokens()) })
	for token, want := range map[string]struct{ tail, attend codes.Code }{
		"":         {codes.Unauthenticated, codes.Unauthenticated},
		"unknown":  {codes.Unauthenticated, codes.Unauthenticated},
		"producer": {codes.PermissionDenied, codes.OK},
		"viewer":   {codes.OK, codes.PermissionDenied},
		"admin":    {codes.OK, codes.PermissionDenied},
	} {
		tail, err := h.operators.TailMessages(withToken(t.Context(), token), &adminv1.TailMessagesRequest{})
		if err == nil {
			_, err = tail.Header()
		}
		if want.tail != codes.OK {
			_, err = tail.Recv()
		}
		wantCode(t, err, want.tail)
		attending, err := h.producers.Attend(withToken(t.Context(), token))
		must.Succeed(t, err)
		_ = attending.Send(helloOf("orders")) // a refused stream ends before
		_, err = attending.Recv()
		wantCode(t, err, want.attend)
	}
}

func withToken(ctx context.Context, token string) context.Context { return certs.WithToken(ctx, token) }

// bearing shows a token with each request of HTTP.
type bearing struct {
	http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.RoundTripper.RoundTrip(r)
}
