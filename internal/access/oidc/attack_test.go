package oidc_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/access/oidc"
	"github.com/msghandler/msghandler/test/issuer"
)

func base64url(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// strangersKey is a key that the issuer does not know, under an identifier of the stranger's choice.
func strangersKey(t testing.TB, id string) jose.SigningKey {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: private, KeyID: id}}
}

func TestForgedJWTIsRefused(t *testing.T) {
	t.Parallel()
	of := issuer.Start(t)
	id, public := of.AddRSAKey()
	source := newSource(t, config(of))
	admin := of.Claims("anna", audience, map[string]any{"roles": "admin"})
	good := of.Sign(admin, nil)
	if got, err := source.Authenticate(t.Context(), good); err != nil || got.Role != access.Admin {
		t.Fatalf("the issuer's own JWT: %v, %v", got, err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	padding := map[string]any{"padding": strings.Repeat("a", oidc.MaxJWT)}
	x5c := base64.StdEncoding.EncodeToString(der)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	var asked atomic.Int32
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer stranger.Close()
	part := strings.Split(good, ".")
	own := strangersKey(t, id)
	embedded := strangersKey(t, "")
	public0, _ := embedded.Key.(jose.JSONWebKey)
	hmac := func(secret []byte) string {
		key := jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: secret, KeyID: id}}
		return issuer.SignWith(key, admin, nil)
	}
	for name, token := range map[string]string{
		"alg none":                         base64url(`{"alg":"none","kid":"`+id+`"}`) + "." + part[1] + ".",
		"alg None":                         base64url(`{"alg":"None"}`) + "." + part[1] + ".",
		"alg none with a signature":        base64url(`{"alg":"none"}`) + "." + part[1] + "." + part[2],
		"no alg":                           base64url(`{"kid":"`+id+`"}`) + "." + part[1] + "." + part[2],
		"HS256 with the public key as PEM": hmac(publicPEM),
		"HS256 with the public key as DER": hmac(der),
		"another algorithm":                base64url(`{"alg":"PS256","kid":"`+id+`"}`) + "." + part[1] + "." + part[2],
		"the algorithm of another key":     base64url(`{"alg":"ES256","kid":"`+id+`"}`) + "." + part[1] + "." + part[2],
		"no signature":                     part[0] + "." + part[1] + ".",
		"other claims":                     part[0] + "." + base64url(`{"iss":"`+of.URL+`"}`) + "." + part[2],
		"a stranger's key by a known id":   issuer.SignWith(own, admin, nil),
		"a stranger's key without an id":   issuer.SignWith(strangersKey(t, ""), admin, nil),
		"jku":                              issuer.SignWith(own, admin, map[string]any{"jku": stranger.URL}),
		"x5u":                              issuer.SignWith(own, admin, map[string]any{"x5u": stranger.URL}),
		"x5c":                              issuer.SignWith(own, admin, map[string]any{"x5c": []string{x5c}}),
		"jwk":                              issuer.SignWith(embedded, admin, map[string]any{"jwk": public0.Public()}),
		"crit":                             of.Sign(admin, map[string]any{"crit": []string{"exp2"}, "exp2": 1}),
		"for another purpose":              of.Sign(admin, map[string]any{"typ": "logout+jwt"}),
		"a JWE":                            base64url(`{"alg":"RSA-OAEP","enc":"A256GCM"}`) + ".a.b",
		"no JSON":                          "eyJ." + part[1] + "." + part[2],
		"a JSON bomb":                      base64url(strings.Repeat(`{"a":`, 800)) + "." + part[1] + "." + part[2],
		"too long":                         of.JWT("anna", audience, padding),
	} {
		got, err := source.Authenticate(t.Context(), token)
		if err == nil || errors.Is(err, access.ErrNotMine) || errors.Is(err, access.ErrUnavailable) ||
			got.Role != access.NoRole || got.Name != "" {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
		if err != nil && (len(err.Error()) > 500 || strings.Contains(err.Error(), part[2])) {
			t.Errorf("%s: the error is long, or quotes the JWT: %v", name, err)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests went to an address of the JWT", n)
	}
	for _, other := range []string{"", "mh_abc", "ey", "eyJ.a", "a.b.c", "eyJ.a.b.c", strings.Repeat("a", 1<<20)} {
		if _, err := source.Authenticate(t.Context(), other); !errors.Is(err, access.ErrNotMine) {
			t.Errorf("%.20q is of another source, got %v", other, err)
		}
	}
}

// Headers that name keys change nothing in a JWT whose signature is the issuer's.
func TestHeadersThatNameKeysAreIgnored(t *testing.T) {
	t.Parallel()
	of := issuer.Start(t)
	source := newSource(t, config(of))
	for _, header := range []string{"jku", "x5u", "unknown"} {
		token := of.Sign(of.Claims("anna", audience, nil), map[string]any{header: "http://127.0.0.1:1/keys"})
		if _, err := source.Authenticate(t.Context(), token); err != nil {
			t.Errorf("%s: %v", header, err)
		}
	}
	for _, typ := range []string{"JWT", "at+jwt", "application/at+JWT"} {
		token := of.Sign(of.Claims("anna", audience, nil), map[string]any{"typ": typ})
		if _, err := source.Authenticate(t.Context(), token); err != nil {
			t.Errorf("typ %s: %v", typ, err)
		}
	}
}

func TestWrongClaimsAreRefused(t *testing.T) {
	t.Parallel()
	of, other := issuer.Start(t), issuer.Start(t)
	source := newSource(t, config(of))
	for _, test := range []struct {
		claims map[string]any
		want   string
	}{
		{map[string]any{"iss": other.URL}, "issued by a different provider"},
		{map[string]any{"iss": of.URL + "/"}, "issued by a different provider"},
		{map[string]any{"iss": nil}, "issued by a different provider"},
		{map[string]any{"aud": "other"}, "expected audience"},
		{map[string]any{"aud": []string{}}, "expected audience"},
		{map[string]any{"aud": nil}, "expected audience"},
		{map[string]any{"aud": map[string]any{audience: true}}, "refused"},
		{map[string]any{"exp": nil}, "has no time of expiry"},
		{map[string]any{"exp": json.RawMessage("null")}, "refused"},
		{map[string]any{"exp": 0}, "the JWT expired at 1970"},
		{map[string]any{"exp": -1e300}, "the JWT"},
		{map[string]any{"exp": 1e300}, "the JWT"},
		{map[string]any{"exp": 1e12}, "has no time of expiry"},
		{map[string]any{"exp": "soon"}, "refused"},
		{map[string]any{"exp": true}, "refused"},
		{map[string]any{"nbf": "soon"}, "refused"},
		{map[string]any{"nbf": 1e300}, "not valid yet (nbf)"},
		{map[string]any{"iat": 1e12}, "not valid yet (iat)"},
		{map[string]any{"sub": nil}, "has no valid name"},
		{map[string]any{"sub": 7}, "refused"},
	} {
		got, err := source.Authenticate(t.Context(), of.JWT("anna", audience, test.claims))
		if err == nil || !strings.Contains(err.Error(), test.want) || got.Name != "" {
			t.Errorf("%v: got %v, %v, want %s", test.claims, got, err, test.want)
		}
	}
	if got, err := source.Authenticate(t.Context(), other.JWT("anna", audience, nil)); err == nil {
		t.Errorf("a JWT of another issuer gives %v", got)
	}
}
