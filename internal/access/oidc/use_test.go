package oidc_test

import (
	"strings"
	"testing"

	"github.com/msghandler/msghandler/test/issuer"
)

// An ID token of a login counts in no call, and an access token begins no login, whichever way the issuer marks them.
func TestTokensCountForTheirUseOnly(t *testing.T) {
	t.Parallel()
	of := issuer.Start(t)
	c := config(of)
	c.LoginClient = "console"
	source := newSource(t, c)
	type claims = map[string]any
	both, peers := []string{audience, "console"}, []string{audience, "cli"}
	for name, test := range map[string]struct {
		typ         string
		claims      claims
		call, login bool
	}{
		"access token of Entra or Okta":    {"JWT", claims{"azp": "console"}, true, false},
		"access token without a typ":       {"", claims{"azp": "console"}, true, false},
		"access token of RFC 9068":         {"at+jwt", claims{"aud": both, "nonce": "n", "azp": "console"}, true, false},
		"the same in full":                 {"application/at+JWT", claims{"aud": both, "nonce": "n"}, true, false},
		"access token of old Keycloak":     {"JWT", claims{"aud": both, "nonce": "n", "typ": "Bearer"}, true, false},
		"access token of a project":        {"JWT", claims{"aud": both}, true, false},
		"access token of Dex":              {"", claims{"aud": peers, "nonce": "n", "at_hash": "h"}, true, false},
		"access token of Dex, one client":  {"", claims{"nonce": "n", "at_hash": "h"}, true, false},
		"machine's ID token of Google":     {"JWT", claims{"azp": "robot", "email_verified": true}, true, false},
		"ID token":                         {"JWT", claims{"aud": "console", "nonce": "n", "at_hash": "h"}, false, true},
		"ID token of several audiences":    {"JWT", claims{"aud": both, "nonce": "n", "azp": "console"}, false, true},
		"ID token without a typ":           {"", claims{"aud": both, "nonce": "n"}, false, true},
		"ID token of Keycloak":             {"JWT", claims{"aud": both, "nonce": "n", "typ": "ID"}, false, true},
		"ID token of Keycloak, elsewhere":  {"JWT", claims{"typ": "ID"}, false, false},
		"ID token in conflict with itself": {"at+jwt", claims{"aud": both, "nonce": "n", "typ": "ID"}, false, false},
		"ID token of a refresh":            {"JWT", claims{"aud": both, "at_hash": "h"}, false, false},
		"ID token of a hybrid flow":        {"JWT", claims{"aud": both, "c_hash": "h"}, false, false},
		"ID token for the party":           {"JWT", claims{"azp": "console", "nonce": "n"}, false, false},
		"odd marks":                        {"JWT", claims{"aud": both, "typ": 7, "nonce": ""}, true, false},
	} {
		token := of.Sign(of.Claims("anna", audience, test.claims), map[string]any{"typ": test.typ})
		got, err := source.Authenticate(t.Context(), token)
		if (err == nil) != test.call || (got.Name != "") != test.call {
			t.Errorf("%s in a call, want %t: got %v, %v", name, test.call, got, err)
		}
		got, err = source.AuthenticateLogin(t.Context(), token, "n")
		if (err == nil) != test.login || (got.Name != "") != test.login {
			t.Errorf("%s at a login, want %t: got %v, %v", name, test.login, got, err)
		}
	}
	access := of.Sign(of.Claims("anna", "console", claims{"nonce": "n"}), map[string]any{"typ": "at+jwt"})
	if _, err := source.AuthenticateLogin(t.Context(), access, "n"); err == nil ||
		!strings.Contains(err.Error(), "a login needs an ID token") {
		t.Errorf("an access token at a login: %v", err)
	}
}
