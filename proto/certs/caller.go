package certs

import (
	"context"
	"crypto/x509"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
)

// ClientCertificate is the verified client certificate of a connection; nil without one.
func ClientCertificate(info credentials.AuthInfo) *x509.Certificate {
	secured, ok := info.(credentials.TLSInfo)
	if !ok || len(secured.State.VerifiedChains) == 0 {
		return nil
	}
	return secured.State.VerifiedChains[0][0]
}

const (
	// authorization is the metadata key of a token.
	authorization = "authorization"
	bearer        = "bearer "
)

// WithToken returns a context whose gRPC calls carry a bearer token. An empty token changes nothing.
func WithToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, authorization, "Bearer "+token)
}

// ShownTokens are the bearer tokens of a gRPC call.
func ShownTokens(ctx context.Context) (tokens []string) {
	for _, value := range metadata.ValueFromIncomingContext(ctx, authorization) {
		if len(value) > len(bearer) && strings.EqualFold(value[:len(bearer)], bearer) {
			tokens = append(tokens, strings.TrimSpace(value[len(bearer):]))
		}
	}
	return tokens
}
