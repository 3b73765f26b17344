package doctor_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/wire"
)

// The doctor looks at the files that the settings name, and at the certificates of those that it dials.
func TestEndsOfCertificatesAreFound(t *testing.T) {
	t.Parallel()
	authority := certstest.NewAuthority(t)
	issue := func(left time.Duration) (cert, key string) {
		return authority.IssueEdited(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(left) }, "127.0.0.1")
	}
	behindTLS := func(left time.Duration) string {
		cert, err := tls.LoadX509KeyPair(issue(left))
		must.Succeed(t, err)
		plain := embeddedtest.Broker(t)
		secured := wire.TLS(t, wire.Host(t, plain), cert).URL(plain)
		return strings.Replace(secured, "amqp://", "amqps://", 1) + "?cacertfile=" + url.QueryEscape(authority.File)
	}
	c := config.Default()
	c.GRPC.Addr, c.HTTP.Addr, c.Redis.URL = "127.0.0.1:0", "127.0.0.1:0", "redis://127.0.0.1:1"
	c.GRPC.Certificates.Cert, c.GRPC.Certificates.Key = issue(-time.Hour)
	c.AMQP.URLs = []string{behindTLS(50 * time.Hour)}
	c.Brokers = map[string]config.Broker{"logs": {URL: behindTLS(-time.Hour)}}
	found := doctor.Examine(t.Context(), doctor.Examination{
		Settings: c, Coordinator: doctor.Coordinator{Address: "127.0.0.1:1"},
	})
	for _, want := range []struct{ area, name, text string }{
		{"certificates", "certificate-expired", "(grpc.tls_cert) expired on"},
		{"certificates", "certificate-ends", "(amqp.url) ends on"},
		{"broker logs", "certificate-expired", "certificate has expired"},
	} {
		if !slices.ContainsFunc(found, func(f doctor.Finding) bool {
			return f.Area == want.area && f.Name == want.name && strings.Contains(f.What, want.text)
		}) {
			t.Errorf("lacks %+v: %+v", want, found)
		}
	}
}
