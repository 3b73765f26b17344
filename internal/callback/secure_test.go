package callback_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"sync"
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
	var seen handshakes
	c := client(t, callback.Config{
		Handshake: seen.note, Timeout: 5 * time.Second, Secure: func(producer string) bool { return producer != "plain" },
		Credentials: source.Client(""),
	})
	plain, secure := serve(t, &business{confirm: committed}), serveSecurely(t, a, "127.0.0.1")
	cert, err := tls.LoadX509KeyPair(a.IssueEdited(func(c *x509.Certificate) { c.NotAfter = time.Now() }, "127.0.0.1"))
	must.Succeed(t, err)
	expired := serve(t, &business{confirm: committed}, grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
	for name, tc := range map[string]struct {
		producer, address string
		// want is in the error; empty: it answers.
		want string
	}{
		"secured":                     {"orders", secure, ""},
		"not secured":                 {"plain", plain, ""},
		"for another host":            {"orders", serveSecurely(t, a, "10.0.0.1", "orders.shop"), "not 127.0.0.1"},
		"expired":                     {"orders", expired, "certificate has expired"},
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
	seen.expect(t, "dns:///"+secure, "dns:///"+expired)
}

// handshakes are the results of handshakes by target.
type handshakes struct{ sync.Map }

func (h *handshakes) note(target string, state tls.ConnectionState, err error) {
	h.Store(target, err == nil && len(state.VerifiedChains) > 0)
}

// expect demands that one target was verified, and that another one failed.
func (h *handshakes) expect(t *testing.T, verified, failed string) {
	t.Helper()
	if met, _ := h.Load(verified); met != true {
		t.Errorf("no verified handshake with %s", verified)
	}
	if met, there := h.Load(failed); !there || met != false {
		t.Errorf("no failed handshake with %s", failed)
	}
}
