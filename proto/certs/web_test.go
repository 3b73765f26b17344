package certs_test

import (
	"crypto/tls"
	"net"
	"slices"
	"testing"

	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/proto/certs"
	"github.com/msghandler/msghandler/proto/certs/certstest"
)

// A client that offers HTTP/2 alone is gRPC's own. All others may want HTTP, and are the same caller.
func TestServerTellsWhoMayWantHTTP(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	server := of(t, a, "coordinator.shop").Server()
	for _, tc := range []struct {
		offered []string
		gets    string
		web     bool
	}{
		{[]string{"h2"}, "h2", false},
		{[]string{"h2", "http/1.1"}, "h2", true},
		{[]string{"http/1.1", "h2"}, "h2", true},
		{[]string{"http/1.1"}, "http/1.1", true},
		{nil, "", true},
	} {
		config := a.Client("orders.shop")
		config.ServerName, config.NextProtos = "coordinator.shop", tc.offered
		here, there := net.Pipe()
		shaken := make(chan error, 1)
		client := tls.Client(here, config)
		go func() { shaken <- client.HandshakeContext(t.Context()) }()
		conn, info, err := server.ServerHandshake(there)
		must(t, err)
		if err := <-shaken; err != nil || client.ConnectionState().NegotiatedProtocol != tc.gets {
			t.Errorf("%q: got %q, %v", tc.offered, client.ConnectionState().NegotiatedProtocol, err)
		}
		web, is := info.(certs.WebInfo)
		secured := web.TLSInfo
		if !is {
			secured, _ = info.(credentials.TLSInfo)
		}
		if is != tc.web || !slices.Equal(certs.ClientCertificate(secured).DNSNames, []string{"orders.shop"}) ||
			secured.SecurityLevel != credentials.PrivacyAndIntegrity {
			t.Errorf("%q: web %t, want %t: %+v", tc.offered, is, tc.web, secured.CommonAuthInfo)
		}
		_ = here.Close()
		_ = conn.Close()
	}
}

// The suites of TLS 1.2 that HTTP/2 forbids are not offered.
func TestServerRefusesHTTP2ForbiddenSuites(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	server := of(t, a, "coordinator.shop").Server()
	config := a.Client("orders.shop")
	config.ServerName, config.MaxVersion = "coordinator.shop", tls.VersionTLS12
	config.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}
	here, there := net.Pipe()
	go func() { _ = tls.Client(here, config).HandshakeContext(t.Context()) }()
	if _, _, err := server.ServerHandshake(there); err == nil {
		t.Error("the handshake has succeeded")
	}
	_ = here.Close()
}
