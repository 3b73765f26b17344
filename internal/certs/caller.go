package certs

import (
	"context"
	"crypto/x509"
	"path"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
)

// CallerNames are the names in the verified client certificate of a connection: the common name, DNS names, URIs and
// e-mail addresses. The result is nil without a verified certificate.
func CallerNames(info credentials.AuthInfo) []string {
	secured, ok := info.(credentials.TLSInfo)
	if !ok || len(secured.State.VerifiedChains) == 0 {
		return nil
	}
	return certifiedNames(secured.State.VerifiedChains[0][0])
}

func certifiedNames(leaf *x509.Certificate) (names []string) {
	if common := leaf.Subject.CommonName; common != "" && !slices.Contains(leaf.DNSNames, common) {
		names = append(names, common)
	}
	names = append(names, leaf.DNSNames...)
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	return append(names, leaf.EmailAddresses...)
}

// AnyMatches reports whether any name matches any glob of path.Match: * is any text without a slash. An invalid glob
// matches nothing.
func AnyMatches(globs, names []string) bool {
	for _, glob := range globs {
		for _, name := range names {
			if matched, err := path.Match(glob, name); err == nil && matched {
				return true
			}
		}
	}
	return false
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
