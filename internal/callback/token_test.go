package callback_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// Both calls carry the current token of their producer, and a producer without a token gets no token.
func TestCallsCarryTheirProducersToken(t *testing.T) {
	t.Parallel()
	seen := make(chan []string, 1)
	target := serve(t, &business{confirm: committed}, grpc.UnaryInterceptor(func(
		ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		seen <- metadata.ValueFromIncomingContext(ctx, "authorization")
		return next(ctx, request)
	}))
	token := map[string]string{"orders": "of-orders"}
	c := client(t, callback.Config{MaxBatch: 1, Token: func(producer string) string { return token[producer] }})
	check := func(producer string, want ...string) {
		t.Helper()
		to := halfmsg.Target{Producer: producer, Address: target}
		api, release, err := c.Open(to)
		must.Succeed(t, err)
		defer release()
		for name, call := range map[string]func() error{
			"Confirm":        func() error { _, err := c.Confirm(t.Context(), to, []string{"1"}, false); return err },
			"DeleteBusiness": func() error { return c.DeleteBusiness(t.Context(), to, []string{"1"}) },
			"Open": func() error {
				_, err := api.Confirm(t.Context(), &msghandlerv1.ConfirmRequest{Producer: producer, Ids: []string{"1"}})
				return err
			},
		} {
			must.Succeed(t, call())
			if got := <-seen; !slices.Equal(got, want) {
				t.Errorf("%s of %s carries %q, want %q", name, producer, got, want)
			}
		}
	}
	check("orders", "Bearer of-orders")
	check("stock")
	token["orders"] = "new"
	check("orders", "Bearer new")
}

// An error is stored, logged and shown: it has no token, also when the producer repeats the token.
func TestErrorRepeatsNoToken(t *testing.T) {
	t.Parallel()
	const token = "s3cret-0123456789"
	byGRPC := &business{confirm: func(
		ctx context.Context, _ *msghandlerv1.ConfirmRequest,
	) (*msghandlerv1.ConfirmResponse, error) {
		return nil, status.Errorf(codes.Internal, "who sent %s?", metadata.ValueFromIncomingContext(ctx, "authorization"))
	}}
	byHTTP := func(before int) string { // with the token where a text is cut
		return serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, strings.Repeat("x", before)+r.Header.Get("Authorization"), http.StatusInternalServerError)
		})
	}
	c := client(t, callback.Config{Token: func(string) string { return token }})
	for _, address := range []string{serve(t, byGRPC), byHTTP(0), byHTTP(250)} {
		to := halfmsg.Target{Producer: "orders", Address: address}
		_, err := c.Confirm(t.Context(), to, []string{"1"}, false)
		if err == nil || strings.Contains(err.Error(), token[:5]) || !strings.Contains(err.Error(), "Bearer [tok") {
			t.Errorf("got %v", err)
		}
	}
	api, release, err := c.Open(halfmsg.Target{Producer: "orders", Address: byHTTP(288)})
	must.Succeed(t, err)
	defer release()
	_, err = api.Confirm(t.Context(), &msghandlerv1.ConfirmRequest{Producer: "orders"})
	if err == nil || strings.Contains(err.Error(), token[:5]) {
		t.Errorf("for doctor: got %v", err)
	}
}

// A producer that does not know this coordinator is out of reach: no verdict, no message to blame, and the remedy is
// told.
func TestARefusalNamesItsRemedy(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Unauthenticated, codes.PermissionDenied} {
		b := &business{confirm: func(context.Context, *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error) {
			return nil, status.Error(code, "who are you")
		}}
		c := client(t, callback.Config{Token: func(string) string { return "s3cret" }})
		verdicts, err := c.Confirm(t.Context(), halfmsg.Target{Producer: "orders", Address: serve(t, b)}, []string{"1"}, true)
		var away *callback.CallError
		if len(verdicts) > 0 || !errors.As(err, &away) || !away.Refused() || errors.Is(err, halfmsg.ErrCallFailed) {
			t.Fatalf("%v: got %v, %v", code, verdicts, err)
		}
		if text := err.Error(); !strings.Contains(text, "callbacks.token_file") ||
			!strings.Contains(text, "callbacks.tls_cert") ||
			strings.Contains(text, "s3cret") {
			t.Errorf("%v: %q", code, text)
		}
	}
}
