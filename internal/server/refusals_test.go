package server_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/server"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// refusedCalls keeps the refusals that a server reports.
type refusedCalls struct {
	mu  sync.Mutex
	all []string
}

func (r *refusedCalls) add(producer, reason, cause string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, fmt.Sprintf("%s %s %s", producer, reason, cause))
}

// want compares the reports since the last call: each begins with a producer and a reason, and holds a word of the
// cause.
func (r *refusedCalls) want(t *testing.T, what string, want ...[2]string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	ok := len(r.all) == len(want)
	for i := range want {
		ok = ok && strings.HasPrefix(r.all[i], want[i][0]) && strings.Contains(r.all[i], want[i][1])
	}
	if !ok {
		t.Errorf("%s: reported: %q, want %q", what, r.all, want)
	}
	r.all = nil
}

func TestEachRefusalIsReportedOnce(t *testing.T) {
	t.Parallel()
	reported := &refusedCalls{}
	h := open(t, func(c *server.Config) { c.Refused = reported.add })
	send := func(change func(r *msghandlerv1.SendHalfMessageRequest)) error {
		r := good("1")
		change(r)
		_, err := h.producers.SendHalfMessage(t.Context(), r)
		return err
	}
	wantCode(t, send(func(*msghandlerv1.SendHalfMessageRequest) {}), codes.OK)
	reported.want(t, "a good one")
	wantCode(t, send(func(r *msghandlerv1.SendHalfMessageRequest) { r.CallbackTarget = "evil:1" }), codes.PermissionDenied)
	reported.want(t, "a target that is not allowed", [2]string{"orders CALLBACK_FORBIDDEN ", "evil:1"})
	wantCode(t, send(func(r *msghandlerv1.SendHalfMessageRequest) { r.CallbackTarget = "" }), codes.Unavailable)
	reported.want(t, "no target", [2]string{"orders NOT_ATTENDED ", "no callback target"})
	wantCode(t, send(func(r *msghandlerv1.SendHalfMessageRequest) { r.Producer = "or\nders" }), codes.InvalidArgument)
	reported.want(t, "a name that is none", [2]string{" INVALID_ARGUMENT ", "producer"})
	wantCode(t, send(func(r *msghandlerv1.SendHalfMessageRequest) { r.Message.Body = []byte("other") }),
		codes.AlreadyExists)
	reported.want(t, "an id that is taken, which is no refusal for good")

	r := good("2")
	_, err := h.producers.SendHalfMessages(t.Context(), &msghandlerv1.SendHalfMessagesRequest{
		Producer: "orders", CallbackTarget: "orders:9000",
		Messages: []*msghandlerv1.Message{r.GetMessage(), {Id: "", RoutingKey: "paid"}, {Id: "3", Exchange: "amq.x"}},
	})
	wantCode(t, err, codes.OK)
	reported.want(t, "two of a batch", [2]string{"orders INVALID_ARGUMENT ", "messages[1].id"},
		[2]string{"orders INVALID_ARGUMENT ", "messages[2].exchange"})
	_, err = h.producers.SendHalfMessages(t.Context(), &msghandlerv1.SendHalfMessagesRequest{
		Producer: "orders", CallbackTarget: "evil:1", Messages: []*msghandlerv1.Message{r.GetMessage()},
	})
	wantCode(t, err, codes.PermissionDenied)
	reported.want(t, "a batch", [2]string{"orders CALLBACK_FORBIDDEN ", "evil:1"})
}

func TestAForbiddenCertificateIsReported(t *testing.T) {
	t.Parallel()
	a, reported := certstest.NewAuthority(t), &refusedCalls{}
	_, address := guarded(t, a, access.Rules{Callers: []string{"dns:orders.shop"}},
		func(c *server.Config) { c.Refused = reported.add })
	client := msghandlerv1.NewMessageHandlerServiceClient(as(t, a, address, "stock.shop"))
	_, err := client.Submit(t.Context(), &msghandlerv1.SubmitRequest{Producer: "orders", Id: "1"})
	wantCode(t, err, codes.PermissionDenied)
	reported.want(t, "a call", [2]string{"orders CALLER_FORBIDDEN ", "stock.shop"})
}

func TestFinallyRefusedCallersAreReported(t *testing.T) {
	t.Parallel()
	reported, trail, tokens := &refusedCalls{}, &recorded{}, &changingTokens{all: someTokens()}
	h := open(t, trail.keep, func(c *server.Config) {
		c.Access, c.Refused = authenticator(t, access.Rules{}, tokens), reported.add
	})
	submit := &msghandlerv1.SubmitRequest{Producer: "orders", Id: "1"}
	_, err := h.producers.Submit(withToken(t.Context(), "revoked"), submit)
	wantCode(t, err, codes.Unauthenticated)
	reported.want(t, "an unknown token, which names no producer")
	if got := trail.take(); len(got) != 1 {
		t.Errorf("recorded: %q", got)
	}
	tokens.change(func() { tokens.err = access.ErrUnavailable })
	_, err = h.producers.Submit(withToken(t.Context(), "producer"), submit)
	wantCode(t, err, codes.Unavailable)
	reported.want(t, "a token that cannot be checked now")
	if got := trail.take(); len(got) != 0 {
		t.Errorf("a token is recorded that cannot be checked now: %q", got)
	}
}

// The caller of Attend is checked before the hello.
func TestStrangersCannotReportBadHellos(t *testing.T) {
	t.Parallel()
	reported := &refusedCalls{}
	h := open(t, func(c *server.Config) {
		c.Access = authenticator(t, access.Rules{}, someTokens())
		c.Refused = reported.add
	})
	stream, err := h.producers.Attend(t.Context())
	must.Succeed(t, err)
	hello := helloOf("orders")
	hello.GetHello().Parallel = -1
	_ = stream.Send(hello) // the stream may be refused already
	_, err = stream.Recv()
	wantCode(t, err, codes.Unauthenticated)
	reported.want(t, "the hello of a stranger")
}
