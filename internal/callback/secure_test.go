package callback_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/proto/certs"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	"github.com/msghandler/msghandler/test/must"
)

// serveSecurely is a producer that shows a certificate for names and wants one.
func serveSecurely(t *testing.T, a *certstest.Authority, names ...string) (address string) {
	t.Helper()
	return serve(t, &business{confirm: committed}, grpc.Creds(credentials.NewTLS(a.Server(names...))))
}

// A server without the producer's certificate is unreachable: it learns nothing, and gives no verdict.
func TestTLSIsChosenPerProducer(t *testing.T) {
	t.Parallel()
	a, foreign := certstest.NewAuthority(t), certstest.NewAuthority(t)
	files := certs.Files{CA: a.File}
	files.Cert, files.Key = a.Issue("coordinator.shop")
	source, err := certs.Open(files, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	c := client(t, callback.Config{
		Timeout: 5 * time.Second, Secure: func(producer string) bool { return producer != "plain" },
		Credentials: source.Client(""),
	})
	plain, secure := serve(t, &business{confirm: committed}), serveSecurely(t, a, "127.0.0.1")
	for name, tc := range map[string]struct {
		producer, address string
		// want is in the error; empty: it answers.
		want string
	}{
		"secured":                     {"orders", secure, ""},
		"not secured":                 {"plain", plain, ""},
		"for another host":            {"orders", serveSecurely(t, a, "10.0.0.1", "orders.shop"), "not 127.0.0.1"},
		"of another authority":        {"orders", serveSecurely(t, foreign, "127.0.0.1"), "unknown authority"},
		"not secured, where it is to": {"orders", plain, "handshake"},
		"secured, where it is not to": {"plain", secure, "preface"},
	} {
		got, err := c.Confirm(t.Context(), halfmsg.Target{Producer: tc.producer, Address: tc.address}, []string{"1"}, true)
		if tc.want == "" {
			if err != nil || got["1"] != halfmsg.VerdictCommitted {
				t.Errorf("%s: got %v, %v", name, got, err)
			}
			continue
		}
		var failed *callback.CallError
		if !errors.As(err, &failed) || failed.Code() != codes.Unavailable || !strings.Contains(err.Error(), tc.want) ||
			errors.Is(err, halfmsg.ErrCallFailed) {
			t.Errorf("%s: got %v, %v; want unreachable for %q", name, got, err, tc.want)
		}
	}
}
