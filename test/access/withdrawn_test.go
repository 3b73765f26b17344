package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/proto/certs"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/programs"
)

// limit is how long a caller may keep an open connection or stream after its proof was withdrawn.
const limit = time.Minute

// Certificates that expire or are revoked close their open connections, and tokens that are revoked end their streams.
func TestWithdrawnCallersAreCutOff(t *testing.T) {
	t.Parallel()
	c := start(t)
	leaving := c.token("leaving", "--role=viewer")
	c.awaitToken(caller{name: "leaving", token: leaving, proved: true})
	tail := c.openTail(leaving)
	revokedFile, revokedKey := c.authority.Issue("revoked.view.shop")
	revoked, err := tls.LoadX509KeyPair(revokedFile, revokedKey)
	if err != nil {
		t.Fatal(err)
	}
	ends := time.Now().Add(7 * time.Second) // before the first check, and after the handshake
	open := map[string]*tls.Conn{
		"expires": c.connect(c.cert(func(cert *x509.Certificate) { cert.NotAfter = ends }, "expires.view.shop")),
		"revoked": c.connect(&revoked), "stays": c.connect(c.cert(nil, "stays.view.shop")),
	}
	c.authority.Revoke(c.crl, revokedFile)
	if out, code := programs.Run(t, "msghandler", nil, "token", "revoke", "leaving", "--file="+c.tokens); code != 0 {
		t.Fatalf("token revoke: %d, %s", code, out)
	}
	for _, name := range []string{"expires", "revoked"} {
		_ = open[name].SetReadDeadline(time.Now().Add(limit))
		_, err := open[name].Read(make([]byte, 1))
		if late := net.Error(nil); err == nil || errors.As(err, &late) && late.Timeout() {
			t.Errorf("the connection of the %s certificate is open after %s: %v", name, limit, err)
		}
	}
	_, err = tail.Recv()
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("the tail of a revoked token ends with %v", err)
	}
	if err := c.handshake(&revoked); err == nil {
		t.Error("a revoked certificate opens a new connection")
	}
	// The other connection, of HTTP, still answers.
	if _, err := open["stays"].Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = open["stays"].SetReadDeadline(time.Now().Add(limit))
	if _, err := open["stays"].Read(make([]byte, 1)); err != nil {
		t.Errorf("the connection of a good certificate: %v", err)
	}
}

// openTail opens a tail with a token.
func (c *coordinator) openTail(token string) interface {
	Recv() (*adminv1.TailMessagesResponse, error)
} {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(certs.WithToken(c.t.Context(), token), limit)
	c.t.Cleanup(cancel)
	tail, err := adminv1.NewAdminServiceClient(c.dial(caller{})).TailMessages(ctx, &adminv1.TailMessagesRequest{})
	if err == nil {
		_, err = tail.Header()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return tail
}

// connect opens a connection with a certificate, which the coordinator has verified when connect returns.
func (c *coordinator) connect(cert *tls.Certificate) *tls.Conn {
	c.t.Helper()
	conn, err := tls.Dial("tcp", c.grpc, c.tls(caller{cert: cert}, "http/1.1"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		c.t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 4096)); err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// handshake opens a connection and closes it; with TLS 1.3 a client learns only by an answer that it is accepted.
func (c *coordinator) handshake(cert *tls.Certificate) error {
	conn, err := tls.Dial("tcp", c.grpc, c.tls(caller{cert: cert}, "http/1.1"))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	_, err = conn.Read(make([]byte, 1))
	return err
}
