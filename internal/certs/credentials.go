package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"
)

// Server are the credentials of a server. The server shows its certificate. Where Files has a CA, every client must
// show a certificate of its authorities.
func (s *Source) Server() credentials.TransportCredentials {
	return newTransport(func() *tls.Config {
		now := s.current()
		config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: now.own, ClientCAs: now.authorities}
		if now.authorities != nil {
			config.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return config
	})
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

// ServerHandshake implements credentials.TransportCredentials.
func (t transport) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(t.config()).ServerHandshake(conn)
}

// Clone implements credentials.TransportCredentials.
func (t transport) Clone() credentials.TransportCredentials { return t }
