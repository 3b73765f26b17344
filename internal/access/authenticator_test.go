package access_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/test/must"
)

// tokens is a source that knows some tokens.
type tokens map[string]access.Identity

// Authenticate implements access.Source.
func (s tokens) Authenticate(_ context.Context, token string) (access.Identity, error) {
	if token == "undecided" {
		return access.Identity{}, fmt.Errorf("%w: its issuer is away", access.ErrUnavailable)
	}
	if token == "refused" {
		return access.Identity{}, errors.New("its signature is wrong")
	}
	if i, known := s[token]; known {
		return i, nil
	}
	return access.Identity{}, access.ErrNotMine
}

func ofToken(name string, role access.Role) access.Identity {
	return access.Identity{Kind: access.Token, Name: "token:" + name, Names: []string{"token:" + name}, Role: role}
}

func TestCallersAreIdentified(t *testing.T) {
	t.Parallel()
	late := ofToken("late", access.Admin)
	late.Expires = time.Now().Add(-time.Second)
	one := tokens{"s3cret-1": ofToken("ci", access.Viewer)}
	two := tokens{"s3cret-2": ofToken("anna", access.Admin), "s3cret-3": late}
	bearing := func(token string) access.Shown { return access.Shown{Authorization: []string{token}} }
	rules := access.Rules{Admins: []string{"dns:*.ops"}}
	cert := certificate(t, x509.Certificate{DNSNames: []string{"anna.ops"}})
	old := certificate(t, x509.Certificate{DNSNames: []string{"anna.ops"}, NotAfter: time.Now().Add(-time.Minute)})
	for what, tc := range map[string]struct {
		shown access.Shown
		name  string
		role  access.Role
		fails string
	}{
		"nothing":                    {access.Shown{}, "", access.NoRole, ""},
		"a certificate":              {access.Shown{Certificate: cert}, "dns:anna.ops", access.Admin, ""},
		"an expired certificate":     {access.Shown{Certificate: old}, "", 0, "certificate has expired"},
		"a nameless certificate":     {access.Shown{Certificate: certificate(t, x509.Certificate{})}, "serial:beef", 0, ""},
		"a token":                    {bearing("Bearer s3cret-1"), "token:ci", access.Viewer, ""},
		"a token of the next source": {bearing("bearer  s3cret-2 "), "token:anna", access.Admin, ""},
		"a token beside a certificate": {
			access.Shown{Certificate: cert, Authorization: []string{"Bearer s3cret-1"}}, "token:ci", access.Viewer, "",
		},
		"a bad token beside a certificate": {
			access.Shown{Certificate: cert, Authorization: []string{"Bearer s3cret-9"}}, "", 0, "token is unknown",
		},
		"an expired token": {access.Shown{Authorization: []string{"Bearer s3cret-3"}}, "", 0, "token has expired"},
		"a refused token":  {access.Shown{Authorization: []string{"Bearer refused"}}, "", 0, "signature is wrong"},
		"two tokens": {
			access.Shown{Authorization: []string{"Bearer s3cret-1", "Bearer s3cret-2"}}, "", 0, "2 values of authorization",
		},
		"a password":   {access.Shown{Authorization: []string{"Basic s3cret-1"}}, "", 0, "no bearer token"},
		"an empty one": {access.Shown{Authorization: []string{""}}, "", 0, "no bearer token"},
		"no token":     {access.Shown{Authorization: []string{"Bearer "}}, "", 0, "token is unknown"},
	} {
		made, err := access.NewAuthenticator(rules, one, two)
		must.Succeed(t, err)
		caller, err := made.Identify(t.Context(), tc.shown)
		if tc.fails != "" {
			if !errors.Is(err, access.ErrUnauthenticated) || !strings.Contains(err.Error(), tc.fails) ||
				strings.Contains(err.Error(), "s3cret") || caller.Kind != "" {
				t.Errorf("%s: got %v, %v, want %q", what, caller, err, tc.fails)
			}
			continue
		}
		if err != nil || caller.Name != tc.name || caller.Role != tc.role {
			t.Errorf("%s: got %q, %v, %v", what, caller.Name, caller.Role, err)
		}
	}
}

func TestUndecidedSourceRefusesNoToken(t *testing.T) {
	t.Parallel()
	made, err := access.NewAuthenticator(access.Rules{}, tokens{})
	must.Succeed(t, err)
	_, err = made.Identify(t.Context(), access.Shown{Authorization: []string{"Bearer undecided"}})
	if !errors.Is(err, access.ErrUnavailable) || errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("got %v", err)
	}
}

func TestAnonymousCallersGetWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		rules access.Rules
		role  access.Role
		may   bool
	}{
		"no rules":            {access.Rules{}, access.NoRole, false},
		"welcome":             {access.Rules{Anonymous: true}, access.Admin, true},
		"a glob for everyone": {access.Rules{Admins: []string{"dns:*"}, Callers: []string{"dns:*"}}, access.NoRole, false},
	} {
		made, err := access.NewAuthenticator(tc.rules)
		must.Succeed(t, err)
		// Without a source of tokens, a token counts for nothing.
		for _, shown := range []access.Shown{{}, {Authorization: []string{"Bearer x"}}} {
			caller, err := made.Identify(t.Context(), shown)
			if err != nil || caller.Kind != access.Anonymous || caller.Role != tc.role || caller.MayCallAs("a") != tc.may {
				t.Errorf("%s: got %v, %v, %t, %v", what, caller, caller.Role, caller.MayCallAs("a"), err)
			}
		}
	}
}
