package certs

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"path"
	"slices"
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

// alternativeNames is the extension of a certificate that holds its subject alternative names.
var alternativeNames = asn1.ObjectIdentifier{2, 5, 29, 17}

// CallerNames are the names in the verified client certificate of a connection: DNS names and URIs, and the common name
// of a certificate without subject alternative names. The result is nil without a verified certificate.
func CallerNames(info credentials.AuthInfo) (names []string) {
	leaf := ClientCertificate(info)
	if leaf == nil {
		return nil
	}
	isAlternative := func(e pkix.Extension) bool { return e.Id.Equal(alternativeNames) }
	if common := leaf.Subject.CommonName; common != "" && !slices.ContainsFunc(leaf.Extensions, isAlternative) {
		names = append(names, common)
	}
	names = append(names, leaf.DNSNames...)
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	return names
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
