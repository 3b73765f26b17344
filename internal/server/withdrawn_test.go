package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/server"
	"github.com/msghandler/msghandler/proto/certs"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
)

// recheck is short, so that a test need not wait for the next check of callers.
const recheck = 10 * time.Millisecond

// changingTokens is a source whose tokens change.
type changingTokens struct {
	mu  sync.Mutex
	all knownTokens
	err error
}

// Authenticate implements access.Source.
func (c *changingTokens) Authenticate(ctx context.Context, token string) (access.Identity, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return access.Identity{}, c.err
	}
	return c.all.Authenticate(ctx, token)
}

func (c *changingTokens) change(edit func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	edit()
}

// Streams end when the token of their caller is revoked, expires or loses its rights.
func TestStreamsOfWithdrawnTokensEnd(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		change func(tokens knownTokens)
		want   codes.Code
	}{
		"revoked": {func(tokens knownTokens) { clear(tokens) }, codes.Unauthenticated},
		"expired": {func(tokens knownTokens) {
			for name, identity := range tokens {
				identity.Expires = time.Now()
				tokens[name] = identity
			}
		}, codes.Unauthenticated},
		"without rights": {func(tokens knownTokens) {
			for name := range tokens {
				tokens[name] = tokenOf(name, access.NoRole, "stock")
			}
		}, codes.PermissionDenied},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			tokens := &changingTokens{all: someTokens()}
			h := open(t, func(c *server.Config) {
				c.Access = authenticator(t, access.Rules{}, tokens)
				c.WithRecheck(recheck)
			})
			tail, err := h.operators.TailMessages(withToken(t.Context(), "viewer"), &adminv1.TailMessagesRequest{})
			must.Succeed(t, err)
			if _, err := tail.Header(); err != nil {
				t.Fatal(err)
			}
			attending, err := h.producers.Attend(withToken(t.Context(), "producer"))
			must.Succeed(t, err)
			must.Succeed(t, attending.Send(helloOf("orders")))
			if _, err := attending.Recv(); err != nil {
				t.Fatal(err)
			}
			byHTTP := openTail(t, h, "viewer")
			tokens.change(func() { tc.change(tokens.all) })
			_, err = tail.Recv()
			wantCode(t, err, tc.want)
			_, err = attending.Recv()
			wantCode(t, err, tc.want)
			rest, err := io.ReadAll(byHTTP)
			if want := strings.ToLower(tc.want.String()[:5]); err != nil || !strings.Contains(string(rest), want) {
				t.Errorf("by HTTP: got %q, %v", rest, err)
			}
		})
	}
}

// openTail opens a tail by HTTP.
func openTail(t *testing.T, h *house, token string) io.Reader {
	t.Helper()
	client := httpClient(t)
	client.Transport = bearing{client.Transport, token}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		h.url()+adminv1.AdminService_TailMessages_FullMethodName, strings.NewReader("\x00\x00\x00\x00\x02{}"))
	must.Succeed(t, err)
	request.Header.Set("Content-Type", "application/connect+json")
	answer, err := client.Do(request)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer.Body
}

// An issuer that is away ends no stream: otherwise its outage would end all of them.
func TestStreamsOutliveAnUndecidedSource(t *testing.T) {
	t.Parallel()
	tokens := &changingTokens{all: someTokens()}
	asked := make(chan struct{}, 1)
	h := open(t, func(c *server.Config) {
		c.Access = authenticator(t, access.Rules{}, tokens)
		c.WithRecheck(recheck)
	})
	tail, err := h.operators.TailMessages(withToken(t.Context(), "viewer"), &adminv1.TailMessagesRequest{})
	if err == nil {
		_, err = tail.Header()
	}
	must.Succeed(t, err)
	tokens.change(func() { tokens.err = signal{access.ErrUnavailable, asked} })
	for range 3 {
		<-asked
	}
	_, err = h.operators.GetStats(withToken(t.Context(), "viewer"), &adminv1.GetStatsRequest{})
	wantCode(t, err, codes.Unavailable)
	tokens.change(func() { tokens.err = nil })
	ctx := withToken(t.Context(), "producer")
	if _, err := h.producers.SendHalfMessage(ctx, good("1")); err != nil {
		t.Fatal(err)
	}
	if got, err := tail.Recv(); err != nil || len(got.GetMoves()) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}

// A token that expires while its source is away ends its streams all the same.
func TestStreamsOfUndecidedSourceExpire(t *testing.T) {
	t.Parallel()
	tokens := &changingTokens{all: someTokens()}
	h := open(t, func(c *server.Config) {
		c.Access = authenticator(t, access.Rules{}, tokens)
		c.WithRecheck(recheck)
	})
	expires := time.Now().Add(time.Second)
	tokens.change(func() {
		identity := tokens.all["viewer"]
		identity.Expires = expires
		tokens.all["viewer"] = identity
	})
	ctx, cancel := context.WithTimeout(withToken(t.Context(), "viewer"), 20*time.Second)
	defer cancel()
	tail, err := h.operators.TailMessages(ctx, &adminv1.TailMessagesRequest{})
	if err == nil {
		_, err = tail.Header()
	}
	must.Succeed(t, err)
	tokens.change(func() { tokens.err = access.ErrUnavailable })
	_, err = tail.Recv()
	wantCode(t, err, codes.Unavailable)
	if time.Now().Before(expires) {
		t.Error("the stream ended before the token expired")
	}
}

// signal is an error that tells when it is looked at.
type signal struct {
	error
	seen chan struct{}
}

// Is implements errors.Is.
func (s signal) Is(target error) bool {
	select {
	case s.seen <- struct{}{}:
	default:
	}
	return errors.Is(s.error, target)
}

// An open connection is closed when its client certificate does not hold any more; others stay.
func TestConnectionsOfWithdrawnCertificatesAreClosed(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	var mu sync.Mutex
	withdrawn := ""
	_, address := guarded(t, a, everyone, func(c *server.Config) {
		c.WithRecheck(recheck)
		c.Withdrawn = func(info credentials.AuthInfo) error {
			mu.Lock()
			defer mu.Unlock()
			if withdrawn != "" && certs.ClientCertificate(info).DNSNames[0] == withdrawn {
				return errors.New("it is revoked")
			}
			return nil
		}
	})
	leaves, stays := as(t, a, address, "leaves.shop"), as(t, a, address, "stays.shop")
	for _, conn := range []*grpc.ClientConn{leaves, stays} {
		admin := adminv1.NewAdminServiceClient(conn)
		if _, err := admin.GetStats(t.Context(), &adminv1.GetStatsRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := tls.Dial("tcp", address, a.Client("leaves.shop")) // an HTTP client
	must.Succeed(t, err)
	defer raw.Close()
	must.Succeed(t, raw.Handshake())
	mu.Lock()
	withdrawn = "leaves.shop"
	mu.Unlock()
	if !leaves.WaitForStateChange(t.Context(), connectivity.Ready) {
		t.Error("the connection stays open")
	}
	_ = raw.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := raw.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection of HTTP stays open: %v", err)
	}
	if state := stays.GetState(); state != connectivity.Ready {
		t.Errorf("the other connection is %s", state)
	}
}

// A certificate that expires on an open connection is refused at the next call.
func TestExpiredCertificateIsRefusedNextCall(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	_, address := guarded(t, a, everyone)
	ends := time.Now().Add(5 * time.Second)
	certFile, keyFile := a.IssueEdited(func(c *x509.Certificate) { c.NotAfter = ends }, "orders.shop")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	must.Succeed(t, err)
	config := a.Client()
	config.Certificates = []tls.Certificate{pair}
	admin := adminv1.NewAdminServiceClient(connect(t, address,
		grpc.WithTransportCredentials(credentials.NewTLS(config))))
	if _, err := admin.GetStats(t.Context(), &adminv1.GetStatsRequest{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the call is refused", func() bool {
		_, err = admin.GetStats(t.Context(), &adminv1.GetStatsRequest{})
		return status.Code(err) == codes.Unauthenticated
	})
	wantText(t, err, "certificate has expired")
}
