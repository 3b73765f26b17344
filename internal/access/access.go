// Package access says who a caller is, and what a caller may do.
//
// A source proves who makes a call, and gives an Identity. The Identity is made once per call and is the only input of
// every decision about it.
package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/ground/typedname"
)

// Kind is how an identity was proved.
type Kind string

// The kinds of identities.
const (
	// Anonymous is a caller that has shown nothing.
	Anonymous Kind = "anonymous"
	// Certificate is a verified client certificate.
	Certificate Kind = "certificate"
	// Token is a token of the token file.
	Token Kind = "token"
	// JWT is a JSON Web Token of the OIDC issuer.
	JWT Kind = "jwt"
	// Proxy is a name that a trusted proxy in front of the console has vouched for.
	Proxy Kind = "proxy"
)

// Role is what an operator may do. Each role may do all that the roles below it may.
type Role int

// The roles, from the least to the most powerful.
const (
	// NoRole may use no call of operators.
	NoRole Role = iota
	// Viewer sees counts and lists, without bodies and headers.
	Viewer
	// Reader sees bodies and headers too.
	Reader
	// Operator retries messages, and replays finished messages and dead letters.
	Operator
	// Admin discards messages and dead letters, and manages tokens.
	Admin
)

var roleNames = []string{"none", "viewer", "reader", "operator", "admin"}

// String returns the role as the configuration writes it.
func (r Role) String() string {
	if r < 0 || int(r) >= len(roleNames) {
		return fmt.Sprintf("role %d", int(r))
	}
	return roleNames[r]
}

// ParseRole returns the role that String has written, and false for any other text.
func ParseRole(text string) (Role, bool) {
	i := slices.Index(roleNames, text)
	return Role(max(i, 0)), i >= 0
}

// Identity is who makes a call. The zero value may do nothing.
type Identity struct {
	// Kind is how the identity was proved.
	Kind Kind
	// Name is for people, in the log and in the audit trail: a typed name such as dns:orders.shop, token:ci or
	// jwt:anna@example.com.
	Name string
	// Names are all typed names of the caller, which rules may match: dns:, uri:, email: and cn: of a certificate, token:
	// of a token, jwt: of a JSON Web Token.
	Names []string
	// Role is what the caller may do as an operator.
	Role Role
	// Producers are globs on names of producers that the caller may call as: * is any text.
	Producers []string
	// Expires is when the proof of the identity ends; zero: never.
	Expires time.Time

	// rules are what the configuration grants to Names; nil: nothing.
	rules *rules
}

// MayCallAs reports whether the caller may call as a producer.
func (i Identity) MayCallAs(producer string) bool {
	return slices.ContainsFunc(i.Producers, func(glob string) bool { return typedname.MatchText(glob, producer) }) ||
		i.rules != nil && i.rules.mayCallAs(producer, i.Names)
}

// MayCallAsNone reports whether the caller has shown nothing by which it could call as any producer.
func (i Identity) MayCallAsNone() bool {
	return (i.Kind == Anonymous || i.Kind == "") && len(i.Producers) == 0 && len(i.Names) == 0
}

// Expired reports whether the proof of the identity has ended.
func (i Identity) Expired() bool { return !i.Expires.IsZero() && !time.Now().Before(i.Expires) }

// String names the caller in texts for people.
func (i Identity) String() string {
	if i.Kind == "" || i.Kind == Anonymous {
		return "an anonymous caller"
	}
	return strings.TrimSpace(string(i.Kind) + " " + i.Name)
}

// Source proves who a caller with a bearer token is.
type Source interface {
	// Authenticate returns the identity of the token's owner. The error is ErrNotMine when another source may know the
	// token. The error of a token that this source refuses says why, without the token.
	Authenticate(ctx context.Context, token string) (Identity, error)
}

// ErrNotMine says that a token is none of this source's.
var ErrNotMine = errors.New("the token is unknown")

type identityKey struct{}

// With returns a context with the caller's identity.
func With(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, i)
}

// From returns the caller's identity; the zero value, which may do nothing, where none was given.
func From(ctx context.Context) Identity {
	i, _ := ctx.Value(identityKey{}).(Identity)
	return i
}
