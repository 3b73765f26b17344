package certs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/proto/certs"
	"github.com/msghandler/msghandler/proto/certs/certstest"
)

// serverOf opens a server's certificate of an authority, and what the server accepts of clients.
func serverOf(t *testing.T, a *certstest.Authority, clients certs.Clients) *certs.Source {
	t.Helper()
	files := certs.Files{CA: a.File}
	files.Cert, files.Key = a.Issue("coordinator.shop")
	s, err := certs.OpenServer(files, clients, slog.New(slog.DiscardHandler))
	must(t, err)
	return s
}

// shown is what a server knows of a client with a certificate after the handshake.
func shown(t *testing.T, server *certs.Source, client *certs.Source) credentials.AuthInfo {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	config := client.ClientConfig("coordinator.shop")
	config.NextProtos = []string{"h2"}
	go func() { _ = tls.Client(here, config).HandshakeContext(t.Context()) }()
	_, info, err := server.Server().ServerHandshake(there)
	must(t, err)
	return info
}

// clientOf opens a client's certificate, which the authority has issued.
func clientOf(t *testing.T, a *certstest.Authority, cert, key string) *certs.Source {
	t.Helper()
	return source(t, certs.Files{Cert: cert, Key: key, CA: a.File}, &bytes.Buffer{})
}

func TestClientCertificateMayBeOptional(t *testing.T) {
	t.Parallel()
	ours, theirs := certstest.NewAuthority(t), certstest.NewAuthority(t)
	server := serverOf(t, ours, certs.Clients{Optional: true})
	bare := source(t, certs.Files{CA: ours.File}, &bytes.Buffer{})
	if _, seen, err := meet(bare.Client(""), server.Server()); err != nil || seen != nil {
		t.Errorf("a client without a certificate: %v, %v", seen, err)
	}
	if _, seen, err := meet(of(t, ours, "orders.shop").Client(""), server.Server()); err != nil || seen == nil {
		t.Errorf("a client with a certificate: %v, %v", seen, err)
	}
	if _, _, err := meet(ofTwo(t, theirs, ours).Client(""), server.Server()); err == nil {
		t.Error("a certificate of another authority is accepted")
	}
	if err := server.Withdrawn(shown(t, server, bare)); err != nil {
		t.Errorf("no certificate is withdrawn: %v", err)
	}
}

func TestRevokedCertificatesAreRefused(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	good, goodKey := a.Issue("orders.shop")
	bad, badKey := a.Issue("orders.shop")
	crl := filepath.Join(t.TempDir(), "crl.pem")
	a.Revoke(crl, bad)
	for _, optional := range []bool{false, true} {
		server := serverOf(t, a, certs.Clients{CRL: crl, Optional: optional}).Server()
		if _, _, err := meet(clientOf(t, a, good, goodKey).Client(""), server); err != nil {
			t.Errorf("a good certificate: %v", err)
		}
		if _, _, err := meet(clientOf(t, a, bad, badKey).Client(""), server); err == nil {
			t.Error("a revoked certificate is accepted")
		}
	}
}

func TestCertificatesOfOpenConnectionsAreWithdrawn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, other := certstest.NewAuthority(t), certstest.NewAuthority(t)
		crl := filepath.Join(t.TempDir(), "crl.pem")
		a.Revoke(crl)
		server := serverOf(t, a, certs.Clients{CRL: crl})
		stays, staysKey := a.Issue("orders.shop")
		revoked, revokedKey := a.Issue("orders.shop")
		ends, endsKey := a.IssueEdited(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Hour) }, "orders.shop")
		open := map[string]credentials.AuthInfo{
			"stays":   shown(t, server, clientOf(t, a, stays, staysKey)),
			"revoked": shown(t, server, clientOf(t, a, revoked, revokedKey)),
			"expires": shown(t, server, clientOf(t, a, ends, endsKey)),
		}
		check := func(when string, withdrawn ...string) {
			t.Helper()
			time.Sleep(2 * time.Second) // in a bubble: the files are read again
			for name, info := range open {
				err := server.Withdrawn(info)
				if want := strings.Contains(strings.Join(withdrawn, " "), name); (err != nil) != want {
					t.Errorf("%s: %s is withdrawn: %v, want %t", when, name, err, want)
				}
			}
		}
		check("at first")
		a.Revoke(crl, revoked)
		check("after the revocation", "revoked")
		time.Sleep(time.Hour)
		check("an hour later", "revoked", "expires")
		content, err := os.ReadFile(other.File)
		must(t, err)
		must(t, os.WriteFile(a.File, content, 0o600))
		check("without the authority, whose list is still there", "stays", "revoked", "expires")
	})
}

// A certificate of the server whose key is wrong keeps no withdrawn authority in use.
func TestAuthorityIsWithdrawnBesideBadKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, other := certstest.NewAuthority(t), certstest.NewAuthority(t)
		files := certs.Files{CA: a.File}
		files.Cert, files.Key = a.Issue("coordinator.shop")
		server, err := certs.OpenServer(files, certs.Clients{}, slog.New(slog.DiscardHandler))
		must(t, err)
		cert, key := a.Issue("orders.shop")
		info := shown(t, server, clientOf(t, a, cert, key))
		for from, to := range map[string]string{key: files.Key, other.File: a.File} {
			content, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, content, 0o600)
			}
			must(t, err)
		}
		time.Sleep(2 * time.Second) // in a bubble: the files are read again
		if server.Withdrawn(info) == nil {
			t.Error("the certificate of the withdrawn authority holds")
		}
	})
}

// The list of an authority that is not in the file, such as an intermediate authority, revokes its certificates only.
func TestListsOfOtherAuthoritiesCount(t *testing.T) {
	t.Parallel()
	a, between, other := certstest.NewAuthority(t), certstest.NewAuthority(t), certstest.NewAuthority(t)
	a.Certify(between)
	good, goodKey := between.Issue("orders.shop")
	bad, badKey := between.Issue("orders.shop")
	withChain(t, between, good, bad)
	crl := filepath.Join(t.TempDir(), "crl.pem")
	for revoking, refused := range map[*certstest.Authority]bool{between: true, other: false} {
		revoking.Revoke(crl, bad)
		server := serverOf(t, a, certs.Clients{CRL: crl}).Server()
		if _, _, err := meet(clientOf(t, a, good, goodKey).Client(""), server); err != nil {
			t.Errorf("a good certificate: %v", err)
		}
		if _, _, err := meet(clientOf(t, a, bad, badKey).Client(""), server); (err != nil) != refused {
			t.Errorf("a revoked certificate: %v, want a refusal: %t", err, refused)
		}
	}
}

// withChain appends the certificate of an intermediate authority to files with certificates.
func withChain(t *testing.T, between *certstest.Authority, files ...string) {
	t.Helper()
	chain, err := os.ReadFile(between.File)
	must(t, err)
	for _, name := range files {
		own, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(name, append(own, chain...), 0o600)
		}
		must(t, err)
	}
}

func TestBadRevocationListsAreNamed(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	for file, want := range map[string]string{
		filepath.Join(dir, "missing.pem"): "no such file",
		write("text.pem", "none"):         "holds no certificate revocation list",
		write("bad.pem", "-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n"): "malformed",
	} {
		files := certs.Files{CA: a.File}
		files.Cert, files.Key = a.Issue("coordinator.shop")
		_, err := certs.OpenServer(files, certs.Clients{CRL: file}, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: got %v, want %q", file, err, want)
		}
	}
}
