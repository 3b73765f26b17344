package certs_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
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

// must ends the test when a step of it returned an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// source opens files and logs to log.
func source(t *testing.T, files certs.Files, log *bytes.Buffer) *certs.Source {
	t.Helper()
	s, err := certs.Open(files, slog.New(slog.NewTextHandler(log, nil)))
	must(t, err)
	return s
}

// of opens the certificate of an authority for names, and takes those of the authority.
func of(t *testing.T, a *certstest.Authority, names ...string) *certs.Source {
	t.Helper()
	files := certs.Files{CA: a.File}
	files.Cert, files.Key = a.Issue(names...)
	return source(t, files, &bytes.Buffer{})
}

// meet has a client and a server greet each other, and say a word as gRPC does next: with TLS 1.3 a client learns
// only then that its certificate is not taken. It returns what each has seen of the other.
func meet(client, server credentials.TransportCredentials) (ofServer, ofClient *x509.Certificate, err error) {
	here, there := net.Pipe()
	defer here.Close()
	for _, end := range []net.Conn{here, there} {
		_ = end.SetDeadline(time.Now().Add(10 * time.Second)) // a pipe takes deadlines
	}
	type seen struct {
		cert *x509.Certificate
		err  error
	}
	met := make(chan seen, 1)
	go func() {
		defer there.Close()
		cert, err := greet(func() (net.Conn, credentials.AuthInfo, error) { return server.ServerHandshake(there) })
		met <- seen{cert, err}
	}()
	ofServer, err = greet(func() (net.Conn, credentials.AuthInfo, error) {
		return client.ClientHandshake(context.Background(), "coordinator.shop:9090", here)
	})
	_ = here.Close()
	got := <-met
	return ofServer, got.cert, errors.Join(err, got.err)
}

func greet(shake func() (net.Conn, credentials.AuthInfo, error)) (*x509.Certificate, error) {
	conn, info, err := shake()
	if err != nil {
		return nil, err
	}
	said := make(chan error, 1)
	go func() {
		_, err := conn.Write([]byte("x"))
		said <- err
	}()
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return nil, err
	}
	if err := <-said; err != nil {
		return nil, err
	}
	if chains := info.(credentials.TLSInfo).State.PeerCertificates; len(chains) > 0 {
		return chains[0], nil
	}
	return nil, nil //nolint:nilnil // without a certificate
}

func TestBothSidesVerifyCertificates(t *testing.T) {
	t.Parallel()
	ours, theirs := certstest.NewAuthority(t), certstest.NewAuthority(t)
	server := of(t, ours, "coordinator.shop").Server()
	bare := certs.Files{CA: ours.File}
	for name, c := range map[string]struct {
		client credentials.TransportCredentials
		want   string
	}{
		"one of the authority":      {of(t, ours, "orders.shop").Client(""), ""},
		"named":                     {of(t, ours, "orders.shop").Client("coordinator.shop"), ""},
		"one of another":            {ofTwo(t, theirs, ours).Client(""), "unknown certificate authority"},
		"none":                      {source(t, bare, &bytes.Buffer{}).Client(""), "certificate required"},
		"who trusts another":        {ofTwo(t, ours, theirs).Client(""), "signed by unknown authority"},
		"who asks for another name": {of(t, ours, "orders.shop").Client("stock.shop"), "not stock.shop"},
	} {
		_, _, err := meet(c.client, server)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	open := certs.Files{}
	open.Cert, open.Key = ours.Issue("coordinator.shop")
	client, server := source(t, bare, &bytes.Buffer{}).Client(""), source(t, open, &bytes.Buffer{}).Server()
	if _, ofClient, err := meet(client, server); err != nil || ofClient != nil {
		t.Errorf("a server without authorities saw %v, %v", ofClient, err)
	}
}

// ofTwo has a certificate of one authority and trusts another.
func ofTwo(t *testing.T, own, trusted *certstest.Authority) *certs.Source {
	t.Helper()
	files := certs.Files{CA: trusted.File}
	files.Cert, files.Key = own.Issue("orders.shop")
	return source(t, files, &bytes.Buffer{})
}

func TestChangedFilesAreReloaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := certstest.NewAuthority(t)
		files := certs.Files{CA: a.File}
		files.Cert, files.Key = a.Issue("coordinator.shop")
		var log bytes.Buffer
		served := source(t, files, &log)
		server, client := served.Server(), of(t, a, "orders.shop").Client("")
		shown := func() string {
			t.Helper()
			time.Sleep(time.Second) // in a bubble
			cert, _, err := meet(client, server)
			must(t, err)
			return cert.SerialNumber.String()
		}
		first := shown()
		a.Renew(files.Cert, files.Key, "coordinator.shop")
		if cert, _, err := meet(client, server); err != nil || cert.SerialNumber.String() != first {
			t.Errorf("files are read for each of a crowd: %v", err)
		}
		second := shown()
		if first == second {
			t.Error("the old certificate is shown")
		}
		must(t, os.WriteFile(files.Cert, []byte("half a cert"), 0o600))
		for range 3 {
			if shown() != second {
				t.Error("the good certificate is not shown any more")
			}
		}
		must(t, os.Remove(files.Key))
		for range 3 {
			if shown() != second {
				t.Error("the good certificate is not shown any more")
			}
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 2 {
			t.Errorf("two troubles are told in %d lines:\n%s", n, &log)
		}
		a.Renew(files.Cert, files.Key, "coordinator.shop")
		if third := shown(); third == second {
			t.Error("the certificate is not renewed after the trouble")
		}
		if want := a.Client("x").Certificates[0].Leaf.NotAfter; !served.Chain()[0].NotAfter.Equal(want) {
			t.Errorf("the certificate ends %v, not %v", served.Chain()[0].NotAfter, want)
		}
		other := certstest.NewAuthority(t)
		content, err := os.ReadFile(other.File)
		must(t, err)
		must(t, os.WriteFile(a.File, content, 0o600))
		time.Sleep(time.Second)
		if _, _, err := meet(client, server); err == nil {
			t.Error("a removed authority is still trusted")
		}
	})
}

func TestBadFilesAreNamed(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	cert, key := a.Issue("orders.shop")
	_, otherKey := a.Issue("orders.shop")
	missing, text := filepath.Join(t.TempDir(), "missing.pem"), filepath.Join(t.TempDir(), "text.pem")
	must(t, os.WriteFile(text, []byte("no certificate"), 0o600))
	for name, c := range map[string]struct {
		files certs.Files
		want  []string
	}{
		"no file":            {certs.Files{Cert: missing, Key: key}, []string{missing, "no such file"}},
		"no certificate":     {certs.Files{Cert: text, Key: key}, []string{text, key, "PEM"}},
		"the key of another": {certs.Files{Cert: cert, Key: otherKey}, []string{cert, otherKey, "does not match"}},
		"no authority":       {certs.Files{CA: text}, []string{text, "holds no certificate in PEM"}},
		"no key":             {certs.Files{Cert: cert}, []string{cert}},
	} {
		_, err := certs.Open(c.files, slog.New(slog.DiscardHandler))
		if err == nil {
			t.Errorf("%s: the certificate is taken", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
	}
}
