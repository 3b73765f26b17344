package certs

import (
	"context"

	"google.golang.org/grpc/credentials"
)

// bearerToken shows a token on each call of a connection.
type bearerToken struct {
	token func() string
	plain bool
}

// Bearer returns credentials that show a bearer token on each call of a connection. Each call asks for the token, so a
// changed token needs no new connection. Without plain, gRPC refuses connections without TLS: plain is for connections
// that do not leave the machine.
func Bearer(token func() string, plain bool) credentials.PerRPCCredentials {
	return bearerToken{token, plain}
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearerToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{authorization: "Bearer " + b.token()}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b bearerToken) RequireTransportSecurity() bool { return !b.plain }
