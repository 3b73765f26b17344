// Package access tries every identity on every method and protocol of the built coordinator, with real TLS, and attacks
// on it.
package access

import (
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	"github.com/msghandler/msghandler/test/issuer"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m, "msghandler")) }

// coordinator is a running coordinator with certificates, a token file and an issuer.
type coordinator struct {
	t           testing.TB
	grpc, http  string
	tokens, crl string
	authority   *certstest.Authority
	issuer      *issuer.Issuer
	*programs.Process
}

// start starts a coordinator that knows its callers, and waits until it serves.
func start(t testing.TB, settings ...string) *coordinator {
	t.Helper()
	dir, addresses := t.TempDir(), servers.Addresses(t, 2)
	c := &coordinator{
		t: t, grpc: addresses[0], http: addresses[1],
		tokens: filepath.Join(dir, "tokens"), crl: filepath.Join(dir, "crl.pem"),
		authority: certstest.NewAuthority(t), issuer: issuer.Start(t),
	}
	c.authority.Revoke(c.crl)
	cert, key := c.authority.Issue("127.0.0.1")
	if err := os.WriteFile(c.tokens, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Process = programs.Start(t, "msghandler", append([]string{
		"MSGHANDLER_GRPC_ADDR=" + c.grpc, "MSGHANDLER_HTTP_ADDR=" + c.http,
		"MSGHANDLER_REDIS_URL=" + embeddedtest.Redis(t), "MSGHANDLER_AMQP_URL=" + embeddedtest.Broker(t),
		"MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*",
		"MSGHANDLER_GRPC_REFLECTION=true", "MSGHANDLER_GRPC_TLS_CERT=" + cert, "MSGHANDLER_GRPC_TLS_KEY=" + key,
		"MSGHANDLER_GRPC_TLS_CLIENT_CA=" + c.authority.File, "MSGHANDLER_GRPC_TLS_CRL=" + c.crl,
		"MSGHANDLER_ACCESS_TOKEN_FILE=" + c.tokens,
		"MSGHANDLER_ACCESS_OIDC_ISSUER=" + c.issuer.URL, "MSGHANDLER_ACCESS_OIDC_AUDIENCE=shop",
		"MSGHANDLER_ACCESS_OIDC_PRODUCERS_CLAIM=producers",
		"MSGHANDLER_ACCESS_VIEWERS=dns:*.view.shop", "MSGHANDLER_ACCESS_OPERATORS=cn:carl,token:night-*",
		"MSGHANDLER_ACCESS_ADMINS=dns:*.ops.shop",
		"MSGHANDLER_GRPC_CALLERS=dns:{producer}.shop,uri:spiffe://shop/{producer}",
	}, settings...), "serve")
	t.Cleanup(func() { c.Stop(time.Minute) })
	servers.Eventually(t, time.Minute, "the coordinator listens", func() bool {
		conn, err := net.Dial("tcp", c.grpc)
		if err != nil {
			return false
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = conn.Read(make([]byte, 1)) // a coordinator that is not ready closes the connection
		var late net.Error
		return errors.As(err, &late) && late.Timeout()
	})
	return c
}

// token makes a token with the command for it.
func (c *coordinator) token(name string, args ...string) string {
	c.t.Helper()
	out, status := programs.Run(c.t, "msghandler", nil,
		append([]string{"token", "new", name, "--file=" + c.tokens}, args...)...)
	if status != 0 {
		c.t.Fatalf("token new: %d, %s", status, out)
	}
	lines := strings.Fields(out)
	for _, word := range lines {
		if strings.HasPrefix(word, "mh_") {
			return word
		}
	}
	c.t.Fatalf("token new has said %q", out)
	return ""
}

// named changes a certificate's names.
func named(common string, emails ...string) func(*x509.Certificate) {
	return func(cert *x509.Certificate) {
		cert.Subject.CommonName, cert.EmailAddresses = common, emails
	}
}

// A coordinator that other machines reach must know its callers, or be told to trust everyone.
func TestServeRefusesStrangersByDefault(t *testing.T) {
	t.Parallel()
	common := []string{"MSGHANDLER_REDIS_URL=" + embeddedtest.Redis(t), "MSGHANDLER_AMQP_URL=" + embeddedtest.Broker(t)}
	for key, env := range map[string][]string{
		"grpc.addr": {"MSGHANDLER_GRPC_ADDR=0.0.0.0:0", "MSGHANDLER_HTTP_ADDR=127.0.0.1:0"},
		"http.addr": {"MSGHANDLER_GRPC_ADDR=127.0.0.1:0", "MSGHANDLER_HTTP_ADDR=:0"},
	} {
		out, status := programs.Run(t, "msghandler", append(env, common...), "serve")
		if status != 2 || !strings.Contains(out, key) || !strings.Contains(out, "access.anonymous: true") {
			t.Errorf("%s: serve ends with %d, %s", key, status, out)
		}
	}
	tokens := filepath.Join(t.TempDir(), "tokens")
	clear := slices.Concat(common, []string{"MSGHANDLER_GRPC_ADDR=0.0.0.0:0", "MSGHANDLER_ACCESS_TOKEN_FILE=" + tokens})
	out, status := programs.Run(t, "msghandler", clear, "serve")
	if status != 2 || !strings.Contains(out, "ACCESS_TOKEN_FILE") || !strings.Contains(out, "needs TLS") {
		t.Errorf("tokens in the clear: serve ends with %d, %s", status, out)
	}
	open := slices.Concat(common, []string{"MSGHANDLER_ACCESS_ANONYMOUS=true", "MSGHANDLER_SERVER=127.0.0.1:1"})
	out, _ = programs.Run(t, "msghandler", open, "doctor", "--timeout=1s")
	if !strings.Contains(out, "access-anonymous") {
		t.Errorf("the doctor says nothing of access.anonymous:\n%s", out)
	}
}
