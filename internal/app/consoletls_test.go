package app_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// The console shows its certificate, and a renewed certificate without a restart. It accepts HTTPS only.
func TestConsoleServesTLS(t *testing.T) {
	t.Parallel()
	authority := certstest.NewAuthority(t)
	cert, key := authority.Issue("console.example.com", "127.0.0.1")
	r := start(t, settings(func(c *config.Config) {
		c.HTTP.Certificates = config.Certificates{Cert: cert, Key: key}
	}))
	get := func(scheme, path string) (names []string, status int, body string) {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: authority.Pool()},
		}}
		answer, err := client.Get(scheme + "://" + r.HTTPAddr() + path)
		must.Succeed(t, err)
		defer answer.Body.Close()
		all, err := io.ReadAll(answer.Body)
		must.Succeed(t, err)
		if hsts := answer.Header.Get("Strict-Transport-Security") != ""; hsts != (answer.TLS != nil) {
			t.Errorf("%s: Strict-Transport-Security is %t", scheme, hsts)
		}
		if answer.TLS != nil {
			names = answer.TLS.PeerCertificates[0].DNSNames
		}
		return names, answer.StatusCode, string(all)
	}
	if _, status, body := get("https", "/healthz"); status != http.StatusOK {
		t.Errorf("got %d, %s", status, body)
	}
	if _, _, body := get("https", "/metrics"); !strings.Contains(body,
		`msghandler_certificate_expires_timestamp_seconds{key="http.tls_cert"} 4.0`) {
		t.Error("the metrics lack the end of the certificate")
	}
	if _, status, body := get("http", "/healthz"); status != http.StatusBadRequest {
		t.Errorf("without TLS: got %d, %s", status, body)
	}
	authority.Renew(cert, key, "renewed.example.com", "127.0.0.1")
	servers.Eventually(t, 20*time.Second, "the renewed certificate is shown", func() bool {
		names, _, _ := get("https", "/healthz")
		return names[0] == "renewed.example.com"
	})
}

func TestConsoleWithoutKeyDoesNotStart(t *testing.T) {
	t.Parallel()
	cert, _ := certstest.NewAuthority(t).Issue("console.example.com")
	_, other := certstest.NewAuthority(t).Issue("console.example.com")
	_, err := app.New(t.Context(), settings(func(c *config.Config) {
		c.HTTP.Certificates = config.Certificates{Cert: cert, Key: other}
	}), app.Deps{})
	if err == nil || !strings.Contains(err.Error(), "http.tls_cert and http.tls_key") {
		t.Errorf("got %v", err)
	}
}
