package oidc_test

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/access/oidc"
	"github.com/msghandler/msghandler/internal/expiry"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// The keys that are known serve on for a while: the end of the issuer's certificate must not go unseen until then.
func TestExpiredIssuerIsReported(t *testing.T) {
	t.Parallel()
	authority := certstest.NewAuthority(t)
	cert, err := tls.LoadX509KeyPair(authority.IssueEdited(func(c *x509.Certificate) {
		c.NotAfter = time.Now().Add(-time.Hour)
	}, "127.0.0.1"))
	must.Succeed(t, err)
	issuer := httptest.NewUnstartedServer(nil)
	issuer.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	issuer.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	issuer.StartTLS()
	defer issuer.Close()
	var ended atomic.Bool
	source, err := oidc.New(t.Context(), oidc.Config{
		Issuer: issuer.URL, Audience: "a", NameClaim: "sub", CA: authority.File,
		Handshake: func(server string, _ tls.ConnectionState, err error) {
			ended.Store(server == "127.0.0.1" && err != nil && expiry.Ended(err) != nil)
		},
	}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	defer source.Close()
	servers.Eventually(t, time.Minute, "the handshake is reported", ended.Load)
}
