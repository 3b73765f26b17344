package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"
)

// Server are the credentials of a server for gRPC and HTTP. The server shows its certificate. Where Files has a CA,
// every client must show a certificate of its authorities that is not revoked, unless Clients says that it is optional.
// The server tells the clients of HTTP by their WebInfo.
func (s *Source) Server() credentials.TransportCredentials {
	return newTransport(func() *tls.Config {
		now := s.current()
		config := &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: now.own, ClientCAs: now.authorities, VerifyConnection: now.accept,
		}
		switch {
		case now.authorities == nil:
		case s.clients.Optional:
			config.ClientAuth = tls.VerifyClientCertIfGiven
		default:
			config.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return config
	})
}

// HTTPConfig is the configuration of a server for HTTP/1.1 that asks for no certificates. Each connection gets the
// certificate of that time.
func (s *Source) HTTPConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, CipherSuites: cipherSuites, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &s.current().own[0], nil },
	}
}

// Client are the credentials of a client. The client shows its certificate, where Files has one, to servers that ask. A
// server's certificate must be for name, or for the dialled host where name is empty.
func (s *Source) Client(name string) credentials.TransportCredentials {
	return newTransport(func() *tls.Config { return s.ClientConfig(name) })
}

// ClientConfig is the current configuration of Client.
func (s *Source) ClientConfig(name string) *tls.Config {
	now := s.current()
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: now.own, RootCAs: now.authorities, ServerName: name}
}

// Unmet reports whether the text of a gRPC error says that two ends did not agree on TLS or on certificates. gRPC gives
// no other sign. A connection that gRPC itself gave up says nothing.
func Unmet(words string) bool {
	return strings.Contains(words, "authentication handshake failed") ||
		strings.Contains(words, "error reading server preface") &&
			!strings.Contains(words, "use of closed network connection")
}

// transport is TLS with a fresh configuration for each connection.
type transport struct {
	credentials.TransportCredentials
	config func() *tls.Config
}

func newTransport(config func() *tls.Config) transport {
	return transport{credentials.NewTLS(config()), config}
}

// ClientHandshake implements credentials.TransportCredentials.
func (t transport) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	config := t.config()
	return credentials.NewTLS(config).ClientHandshake(ctx, cmp.Or(config.ServerName, authority), conn)
}

// WebInfo is what a client has shown that may want something other than native gRPC. The clients of native gRPC offer
// HTTP/2 alone, and get a credentials.TLSInfo.
type WebInfo struct {
	credentials.TLSInfo
}

// cipherSuites are the suites for TLS 1.2 that HTTP/2 allows: RFC 7540 forbids those with CBC.
var cipherSuites = func() (allowed []uint16) {
	for _, suite := range tls.CipherSuites() {
		if !strings.Contains(suite.Name, "_CBC_") {
			allowed = append(allowed, suite.ID)
		}
	}
	return allowed
}()

// ServerHandshake implements credentials.TransportCredentials.
func (t transport) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config := t.config()
	config.NextProtos, config.CipherSuites = []string{"h2", "http/1.1"}, cipherSuites
	native := false
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		native = len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == "h2"
		return nil, nil //nolint:nilnil // the configuration stays
	}
	conn := tls.Server(raw, config)
	if err := conn.HandshakeContext(context.Background()); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	info := credentials.TLSInfo{
		State:          conn.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
	if native {
		return conn, info, nil
	}
	return conn, WebInfo{info}, nil
}

// Clone implements credentials.TransportCredentials.
func (t transport) Clone() credentials.TransportCredentials { return t }
