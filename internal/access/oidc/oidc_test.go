package oidc_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/access/oidc"
	"github.com/msghandler/msghandler/test/issuer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const audience = "msghandler"

func config(of *issuer.Issuer) oidc.Config {
	return oidc.Config{
		Issuer: of.URL, CA: of.CA, Audience: audience,
		NameClaim: "sub", RolesClaim: "roles", ProducersClaim: "producers",
	}
}

func newSource(t testing.TB, c oidc.Config) *oidc.Source {
	t.Helper()
	source, err := oidc.New(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	return source
}

func TestJWTBecomesAnIdentity(t *testing.T) {
	t.Parallel()
	of := issuer.Start(t)
	source := newSource(t, config(of))
	type claims = map[string]any
	for name, test := range map[string]struct {
		claims    claims
		role      access.Role
		producers []string
	}{
		"no claims":         {},
		"a role":            {claims: claims{"roles": "reader"}, role: access.Reader},
		"roles":             {claims: claims{"roles": []any{"viewer", "operator", "reader"}}, role: access.Operator},
		"foreign roles":     {claims: claims{"roles": []any{"Admin", "root", "admin ", "viewer,admin", "", "none"}}},
		"mixed types":       {claims: claims{"roles": []any{4, nil, []any{"admin"}, "viewer"}}, role: access.Viewer},
		"roles as object":   {claims: claims{"roles": claims{"admin": true}}},
		"roles as number":   {claims: claims{"roles": 4}},
		"roles as true":     {claims: claims{"roles": true}},
		"other claims":      {claims: claims{"role": "admin", "Roles": "admin", "ROLES": []any{"admin"}}},
		"a producer":        {claims: claims{"producers": "orders"}, producers: []string{"orders"}},
		"producers":         {claims: claims{"producers": []any{"orders", "st-*"}}, producers: []string{"orders", "st-*"}},
		"invalid producers": {claims: claims{"producers": []any{"a b", "", "a/b", "[a]", 3}}},
		"several audiences": {claims: claims{"aud": []any{"other", audience}}},
	} {
		want := access.Identity{
			Kind: access.JWT, Name: "jwt:anna", Names: []string{"jwt:anna"}, Role: test.role, Producers: test.producers,
		}
		ignoreExpires := cmpopts.IgnoreFields(access.Identity{}, "Expires")
		ignoreRules := cmpopts.IgnoreUnexported(access.Identity{})
		got, err := source.Authenticate(t.Context(), of.JWT("anna", audience, test.claims))
		if diff := cmp.Diff(want, got, ignoreExpires, ignoreRules); err != nil || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
}

func TestNameIsThatOfTheClaim(t *testing.T) {
	t.Parallel()
	of := issuer.Start(t)
	c := config(of)
	c.NameClaim = "email"
	source := newSource(t, c)
	for _, test := range []struct {
		claims map[string]any
		want   string
	}{
		{map[string]any{"email": "anna@example.com", "email_verified": true}, "jwt:anna@example.com"},
		{map[string]any{"email": "anna@example.com", "email_verified": "true"}, "jwt:anna@example.com"},
		{map[string]any{"email": "anna@example.com", "email_verified": false}, ""},
		{map[string]any{"email": "anna@example.com", "email_verified": 1}, ""},
		{map[string]any{"email": "anna@example.com"}, ""},
		{map[string]any{"email_verified": true}, ""},
		{map[string]any{"email": "", "email_verified": true}, ""},
		{map[string]any{"email": []any{"anna@example.com"}, "email_verified": true}, ""},
		{map[string]any{"email": "anna\u202e@example.com", "email_verified": true}, ""},
		{map[string]any{"email": " anna@example.com", "email_verified": true}, ""},
		{map[string]any{"email": "anna@example.com\u00a0", "email_verified": true}, ""},
		{map[string]any{"email": "anna\x00", "email_verified": true}, ""},
		{map[string]any{"email": strings.Repeat("a", 257), "email_verified": true}, ""},
	} {
		got, err := source.Authenticate(t.Context(), of.JWT("anna", audience, test.claims))
		if got.Name != test.want || (err == nil) != (test.want != "") ||
			err != nil && !strings.Contains(err.Error(), "has no valid name") {
			t.Errorf("%v: got %v, %v", test.claims, got, err)
		}
	}
}

// A program gets its JWT from the issuer itself, over TLS with an authority of its own.
func TestMachineShowsAJWTOfTheIssuer(t *testing.T) {
	t.Parallel()
	of := issuer.StartTLS(t)
	of.AddMachine("orders-service", "geheim", audience, map[string]any{"producers": []string{"orders"}})
	source := newSource(t, config(of))
	got, err := source.Authenticate(t.Context(), machineToken(t, source, of))
	if err != nil || got.Name != "jwt:orders-service" || !cmp.Equal(got.Producers, []string{"orders"}) {
		t.Errorf("got %+v, %v", got, err)
	}

	c := config(of)
	c.CA = ""
	_, err = newSource(t, c).Authenticate(t.Context(), of.JWT("anna", audience, nil))
	if !errors.Is(err, access.ErrUnavailable) {
		t.Errorf("an issuer of an unknown authority: %v", err)
	}
}

// endpoint waits until the issuer has answered.
func endpoint(t *testing.T, source *oidc.Source, of *issuer.Issuer) oauth2.Endpoint {
	t.Helper()
	if _, err := source.Authenticate(t.Context(), of.JWT("anna", audience, nil)); err != nil {
		t.Fatal(err)
	}
	found, err := source.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func machineToken(t *testing.T, source *oidc.Source, of *issuer.Issuer) string {
	t.Helper()
	machine := clientcredentials.Config{
		ClientID: "orders-service", ClientSecret: "geheim", TokenURL: endpoint(t, source, of).TokenURL,
	}
	token, err := machine.Token(source.ClientContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return token.AccessToken
}

func TestPersonLogsInWithPKCE(t *testing.T) {
	t.Parallel()
	of := issuer.StartTLS(t)
	const redirect = "http://127.0.0.1:8080/login/callback"
	of.AddClient("console", "geheim", redirect)
	of.AddUser("anna", map[string]any{"roles": []string{"operator"}})
	loginBy := func(client string) *oidc.Source {
		c := config(of)
		c.LoginClient = client
		return newSource(t, c)
	}
	source := loginBy("console")
	client := oauth2.Config{
		ClientID: "console", ClientSecret: "geheim", RedirectURL: redirect, Endpoint: endpoint(t, source, of),
		Scopes: []string{"openid"},
	}
	ctx, secret := source.ClientContext(t.Context()), oauth2.GenerateVerifier()
	code := logIn(t, ctx, client.AuthCodeURL("state-1", oauth2.S256ChallengeOption(secret),
		oauth2.SetAuthURLParam("nonce", "nonce-1")))
	if _, err := client.Exchange(ctx, code, oauth2.VerifierOption(oauth2.GenerateVerifier())); err == nil {
		t.Error("the code was exchanged with another secret of PKCE")
	}
	token, err := client.Exchange(ctx, code, oauth2.VerifierOption(secret))
	if err != nil {
		t.Fatal(err)
	}
	idToken, _ := token.Extra("id_token").(string)
	got, err := source.AuthenticateLogin(ctx, idToken, "nonce-1")
	if err != nil || got.Name != "jwt:anna" || got.Role != access.Operator || got.Expires.IsZero() {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := source.Authenticate(ctx, idToken); err == nil {
		t.Errorf("an ID token for the console is accepted in a call: %v", got)
	}
	for name, test := range map[string]struct{ token, client, nonce, want string }{
		"another login":  {idToken, "console", "nonce-2", "of another login"},
		"another client": {idToken, "other", "nonce-1", "expected audience"},
		"no nonce":       {idToken, "console", "", "needs a client and a nonce"},
		"no client":      {idToken, "", "nonce-1", "needs a client and a nonce"},
		"no JWT":         {"x", "console", "nonce-1", "is no JWT"},
		"without a nonce": {
			of.JWT("anna", "console", nil), "console", "nonce-1", "of another login",
		},
		"another party": {
			of.JWT("anna", "console", map[string]any{"azp": "other", "nonce": "n"}), "console", "n", "to another client",
		},
	} {
		got, err := loginBy(test.client).AuthenticateLogin(ctx, test.token, test.nonce)
		if err == nil || !strings.Contains(err.Error(), test.want) || got.Name != "" {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

// logIn does what a browser does, and returns the code.
func logIn(t *testing.T, ctx context.Context, address string) (code string) {
	t.Helper()
	browser := *ctx.Value(oauth2.HTTPClient).(*http.Client) //nolint:forcetypeassert // the test ends otherwise
	browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	follow := func(answer *http.Response, err error) *url.URL {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		to, err := answer.Location()
		if err != nil {
			t.Fatalf("%s: %v", answer.Status, err)
		}
		return to
	}
	page := follow(browser.Get(address))
	answer := follow(browser.PostForm(page.Scheme+"://"+page.Host+page.Path,
		url.Values{"id": {page.Query().Get("id")}, "user": {"anna"}}))
	back := follow(browser.Get(answer.String()))
	if back.Query().Get("state") != "state-1" {
		t.Errorf("the browser comes back to %s", back)
	}
	return back.Query().Get("code")
}

func TestBadConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	good := oidc.Config{
		Issuer: "https://id.example.com/realm", Audience: audience, NameClaim: "sub",
	}
	for want, change := range map[string]func(*oidc.Config){
		"is no URL of an issuer":       func(c *oidc.Config) { c.Issuer = "id.example.com" },
		"does not begin with https://": func(c *oidc.Config) { c.Issuer = "http://id.example.com" },
		"needs an audience":            func(c *oidc.Config) { c.Audience = "" },
		"a claim of names":             func(c *oidc.Config) { c.NameClaim = "" },
		"missing.pem":                  func(c *oidc.Config) { c.CA = "missing.pem" },
	} {
		c := good
		change(&c)
		if _, err := oidc.New(t.Context(), c, slog.New(slog.DiscardHandler)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

// A bad issuer costs neither trust nor memory.
func TestUnsafeAnswersOfIssuerAreRefused(t *testing.T) {
	t.Parallel()
	type answers map[string]func(w http.ResponseWriter, self string)
	text := func(format string) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, self string) {
			_, _ = w.Write([]byte(strings.ReplaceAll(format, "SELF", self)))
		}
	}
	discovery := text(`{"issuer":"SELF","jwks_uri":"SELF/keys"}`)
	redirect := func(w http.ResponseWriter, _ string) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusFound)
	}
	endless := func(w http.ResponseWriter, _ string) {
		line := bytes.Repeat([]byte(" "), 1<<16)
		for range 1 << 10 {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
		_, _ = w.Write([]byte(`{"keys":[]}`))
	}
	for want, test := range map[string]answers{
		"fetch addresses: 404":         {},
		"did not match the issuer URL": {issuer.DiscoveryPath: text(`{"issuer":"https://other","jwks_uri":"SELF/keys"}`)},
		"an address of the issuer does": {
			issuer.DiscoveryPath: text(`{"issuer":"SELF","jwks_uri":"http://keys.example.com/"}`),
		},
		"the issuer does not begin with https://": {
			issuer.DiscoveryPath: text(`{"issuer":"SELF","jwks_uri":"SELF/keys","token_endpoint":"http://a.example.com"}`),
		},
		"fetch addresses: Get": {issuer.DiscoveryPath: redirect},
		"fetch keys: Get": {
			issuer.DiscoveryPath: discovery, "/keys": redirect, "/elsewhere": text(`{"keys":[]}`),
		},
		"fetch keys: the status is 404":                 {issuer.DiscoveryPath: discovery},
		"fetch keys: the answer is no JSON Web Key Set": {issuer.DiscoveryPath: discovery, "/keys": endless},
		"is no JSON Web Key Set: it has no keys":        {issuer.DiscoveryPath: discovery, "/keys": text(`{}`)},
	} {
		var server *httptest.Server
		server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if answer := test[r.URL.Path]; answer != nil {
				answer(w, server.URL)
				return
			}
			http.NotFound(w, r)
		}))
		defer server.Close()
		log := newLog()
		source, err := oidc.New(t.Context(), oidc.Config{
			Issuer: server.URL, Audience: audience, NameClaim: "sub",
		}, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		log.wait(t, want)
		if _, err := source.Authenticate(t.Context(), "eyJhbGciOiJSUzI1NiJ9.e30.AA"); !errors.Is(err, access.ErrUnavailable) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

// lines is a log that a test waits for.
type lines struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{}
}

func newLog() *lines { return &lines{written: make(chan struct{}, 1)} }

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.written <- struct{}{}:
	default:
	}
	return l.text.Write(line)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) wait(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.written:
		case <-time.After(10 * time.Second):
			t.Fatalf("the log lacks %q:\n%s", text, l)
		}
	}
}
