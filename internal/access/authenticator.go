package access

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/msghandler/msghandler/internal/ground/typedname"
)

// Shown is what a caller has shown of who it is. The zero value is of an anonymous caller.
type Shown struct {
	// Certificate is the verified client certificate; nil: none.
	Certificate *x509.Certificate
	// Authorization are the values of the header, or the metadata key, authorization.
	Authorization []string
}

// ErrUnauthenticated is wrapped by the error about a caller whose proof is missing or does not hold.
var ErrUnauthenticated = errors.New("the caller is not authenticated")

// unauthenticatedError is ErrUnauthenticated in words fit for the caller.
type unauthenticatedError struct{ why string }

// Error implements error.
func (e *unauthenticatedError) Error() string { return e.why }

// Unwrap implements errors.Is.
func (*unauthenticatedError) Unwrap() error { return ErrUnauthenticated }

func unauthenticated(format string, args ...any) error {
	return &unauthenticatedError{fmt.Sprintf(format, args...)}
}

// Authenticator makes the identity of each caller. It is safe for concurrent use.
type Authenticator struct {
	rules   atomic.Pointer[rules]
	sources []Source
}

// NewAuthenticator returns an Authenticator that asks the sources about bearer tokens, in their order. It fails when a
// glob of the rules is invalid. Without sources, tokens count for nothing.
func NewAuthenticator(from Rules, sources ...Source) (*Authenticator, error) {
	checked, err := parseRules(from)
	if err != nil {
		return nil, err
	}
	a := &Authenticator{sources: sources}
	a.rules.Store(checked)
	return a, nil
}

// Use replaces the rules at once, for the identities that are made from now on. An invalid glob changes nothing.
func (a *Authenticator) Use(from Rules) error {
	checked, err := parseRules(from)
	if err == nil {
		a.rules.Store(checked)
	}
	return err
}

// Identify makes the identity of a caller, with all that the source and the rules grant. A token decides alone, also
// beside a certificate. An invalid credential is an error, and never anonymous. The error wraps ErrUnauthenticated or
// ErrUnavailable, its words are fit for the caller, and it never quotes a token.
func (a *Authenticator) Identify(ctx context.Context, shown Shown) (Identity, error) {
	switch {
	case len(shown.Authorization) > 0 && len(a.sources) > 0:
		token, err := bearerToken(shown.Authorization)
		if err != nil {
			return Identity{}, err
		}
		return a.IdentifyToken(ctx, token)
	case shown.Certificate != nil:
		return a.identifyCertificate(shown.Certificate)
	case a.rules.Load().anonymous:
		return Identity{Kind: Anonymous, Role: Admin, Producers: []string{"*"}}, nil
	}
	return a.Complete(Identity{Kind: Anonymous}), nil
}

// IdentifyToken makes the identity of a caller who has shown a bearer token.
func (a *Authenticator) IdentifyToken(ctx context.Context, token string) (Identity, error) {
	for _, source := range a.sources {
		identity, err := source.Authenticate(ctx, token)
		switch {
		case errors.Is(err, ErrNotMine):
			continue
		case errors.Is(err, ErrUnavailable):
			return Identity{}, err
		case err != nil:
			return Identity{}, unauthenticated("%s", err)
		case identity.Expired():
			return Identity{}, unauthenticated("the token has expired; show a new one")
		}
		return a.Complete(identity), nil
	}
	return Identity{}, unauthenticated("the token is unknown: it may be revoked; make one with msghandler token new")
}

func (a *Authenticator) identifyCertificate(cert *x509.Certificate) (Identity, error) {
	identity := Identity{Kind: Certificate, Names: typedname.OfCertificate(cert), Expires: cert.NotAfter}
	if identity.Expired() {
		return Identity{}, unauthenticated("the client certificate has expired; show a new one on a new connection")
	}
	if identity.Name = fmt.Sprintf("serial:%x", cert.SerialNumber); len(identity.Names) > 0 {
		identity.Name = identity.Names[0]
	}
	return a.Complete(identity), nil
}

// Complete adds what the rules grant to the names of an identity that a source has proved.
func (a *Authenticator) Complete(identity Identity) Identity {
	identity.rules = a.rules.Load()
	identity.Role = max(identity.Role, identity.rules.roleOf(identity.Names))
	return identity
}

// bearerToken is the token of a caller who has shown an authorization.
func bearerToken(values []string) (string, error) {
	const scheme = "bearer "
	value := values[0]
	switch {
	case len(values) > 1:
		return "", unauthenticated("the call has %d values of authorization: show one token", len(values))
	case len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme):
		return "", unauthenticated("the authorization of the call is no bearer token: send authorization: Bearer TOKEN")
	}
	return strings.TrimSpace(value[len(scheme):]), nil
}
