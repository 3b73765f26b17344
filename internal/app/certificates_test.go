package app_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// endsIn lets a certificate end after a time.
func endsIn(left time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotAfter = time.Now().Add(left) }
}

// behindTLS is the URL of an embedded broker behind TLS, with a certificate of the authority that ends after a time.
func behindTLS(t *testing.T, authority *certstest.Authority, left time.Duration) string {
	t.Helper()
	plain := embeddedtest.Broker(t)
	cert, err := tls.LoadX509KeyPair(authority.IssueEdited(endsIn(left), "127.0.0.1"))
	must.Succeed(t, err)
	secured := wire.TLS(t, wire.Host(t, plain), cert).URL(plain)
	return strings.Replace(secured, "amqp://", "amqps://", 1) + "?cacertfile=" + url.QueryEscape(authority.File)
}

func (r *running) page(t *testing.T, path string) string {
	t.Helper()
	answer, err := http.Get("http://" + r.HTTPAddr() + path)
	must.Succeed(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must.Succeed(t, err)
	return string(body)
}

// An expired certificate of its own is no reason not to start: clients may not verify it. Everyone is told.
func TestEndsOfCertificatesAreReported(t *testing.T) {
	t.Parallel()
	authority := certstest.NewAuthority(t)
	cert, key := authority.IssueEdited(endsIn(-time.Hour), "127.0.0.1")
	r := start(t, settings(func(c *config.Config) {
		c.GRPC.Certificates = config.Certificates{Cert: cert, Key: key, CA: authority.File}
		c.AMQP.URLs = []string{behindTLS(t, authority, 50*time.Hour)}
	}))
	r.awaitReady(t)
	servers.Eventually(t, time.Minute, "the log has both certificates", func() bool {
		log := r.log.String()
		return strings.Contains(log, `level=ERROR msg="a certificate has expired`) &&
			strings.Contains(log, "certificate="+cert) &&
			strings.Contains(log, `level=WARN msg="a certificate ends soon`) && strings.Contains(log, "key=amqp.url")
	})
	overview := r.page(t, "/")
	for _, want := range []string{"expired certificates: " + cert + " (grpc.tls_cert) expired on", "(amqp.url) ends on"} {
		if !strings.Contains(overview, want) {
			t.Errorf("the overview lacks %q:\n%s", want, overview)
		}
	}
	metrics := r.page(t, "/metrics")
	for _, key := range []string{"grpc.tls_cert", "grpc.tls_client_ca", "amqp.url"} {
		if !strings.Contains(metrics, `msghandler_certificate_expires_timestamp_seconds{key="`+key+`"}`) {
			t.Errorf("no metric of %s", key)
		}
	}
	authority.Renew(cert, key, "127.0.0.1")
	// The overview shows the ended problem among the marks of its charts.
	const lasts = `msghandler_problem{finding="certificate-expired"`
	if !strings.Contains(metrics, lasts) {
		t.Error("the metrics lack the problem")
	}
	servers.Eventually(t, time.Minute, "the renewed certificate is known", func() bool {
		return !strings.Contains(r.page(t, "/metrics"), lasts)
	})
}

func TestExpiredBrokersCertificateIsNamed(t *testing.T) {
	t.Parallel()
	authority := certstest.NewAuthority(t)
	r := start(t, settings(func(c *config.Config) {
		c.AMQP.URLs = []string{behindTLS(t, authority, -time.Hour)}
	}))
	servers.Eventually(t, time.Minute, "the check names the cause", func() bool {
		_, failing := r.ready()
		return strings.Contains(failing, `"name": "certificate-expired"`) &&
			strings.Contains(failing, "the certificate expired on "+time.Now().Add(-time.Hour).UTC().Format(time.DateOnly)) &&
			strings.Contains(failing, "give the server that amqp.url names a new certificate")
	})
	if !strings.Contains(r.page(t, "/metrics"), `msghandler_certificate_expires_timestamp_seconds{key="amqp.url"}`) {
		t.Error("the metrics lack the end of the refused certificate")
	}
}
