// Package issuer is an OpenID Connect issuer for tests, in the process of the test. Discovery, keys, logins and tokens
// are those of zitadel/oidc; users, clients and keys are in memory.
package issuer

import (
	"encoding/pem"
	"html/template"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/zitadel/oidc/v3/pkg/op"
)

// Issuer is an issuer. It is safe for concurrent use.
type Issuer struct {
	// URL is the issuer's name and address.
	URL string
	// CA is a PEM file with the authority of the issuer's certificate; empty for an issuer without TLS.
	CA string

	handler http.Handler
	storage *storage

	mu       sync.Mutex
	failing  bool
	requests map[string]int
}

// New makes an issuer with this URL, which is reached through its method ServeHTTP only.
func New(t testing.TB, url string) *Issuer {
	t.Helper()
	i := &Issuer{URL: url, storage: newStorage(), requests: map[string]int{}}
	i.AddKey()
	provider, err := op.NewProvider(
		&op.Config{CodeMethodS256: true, AuthMethodPost: true, SupportedScopes: []string{"openid", "profile", "email"}},
		i.storage, op.StaticIssuer(url), op.WithAllowInsecure(),
	)
	if err != nil {
		t.Fatal(err)
	}
	login := &loginPage{i.storage, op.AuthCallbackURL(provider)}
	mux := http.NewServeMux()
	mux.Handle("/", provider)
	mux.Handle("GET "+loginPath, http.HandlerFunc(login.show))
	mux.Handle("POST "+loginPath, op.NewIssuerInterceptor(provider.IssuerFromRequest).HandlerFunc(login.submit))
	i.handler = mux
	return i
}

// Start starts an issuer on a free port of 127.0.0.1, without TLS.
func Start(t testing.TB) *Issuer {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	i := New(t, "http://"+server.Listener.Addr().String())
	server.Config.Handler = i
	server.Start()
	t.Cleanup(server.Close)
	return i
}

// StartTLS starts an issuer on a free port of 127.0.0.1, with TLS.
func StartTLS(t testing.TB) *Issuer {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	i := New(t, "https://"+server.Listener.Addr().String())
	server.Config.Handler = i
	server.StartTLS()
	t.Cleanup(server.Close)
	i.CA = filepath.Join(t.TempDir(), "issuer-ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	if err := os.WriteFile(i.CA, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

// StartAt starts an issuer at an address that the test has reserved, so that the issuer can be away at first.
func StartAt(t testing.TB, listener net.Listener) *Issuer {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	_ = server.Listener.Close()
	server.Listener = listener
	i := New(t, "http://"+listener.Addr().String())
	server.Config.Handler = i
	server.Start()
	t.Cleanup(server.Close)
	return i
}

// ServeHTTP serves the issuer.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.requests[r.URL.Path]++
	failing := i.failing
	i.mu.Unlock()
	if failing {
		http.Error(w, "out of order", http.StatusServiceUnavailable)
		return
	}
	i.handler.ServeHTTP(w, r)
}

// Fail makes every request fail, or ends the failure.
func (i *Issuer) Fail(failing bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failing = failing
}

// The paths of the issuer that tests count.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	KeysPath      = "/keys"
)

// Requests is how many requests for a path have arrived.
func (i *Issuer) Requests(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.requests[path]
}

// AddUser adds a user, who logs in by a button with the user's name. The claims are in the user's ID token.
func (i *Issuer) AddUser(name string, claims map[string]any) { i.storage.addUser(name, claims) }

// AddClient adds a client for logins of people: with a secret, and with PKCE where the client uses PKCE.
func (i *Issuer) AddClient(id, secret string, redirectURIs ...string) {
	i.storage.addClient(&client{id: id, secret: secret, redirectURIs: redirectURIs})
}

// AddMachine adds a client that gets an access token for itself: a JWT for the audience, with the claims.
func (i *Issuer) AddMachine(id, secret, audience string, claims map[string]any) {
	i.storage.addClient(&client{id: id, secret: secret, audience: audience, claims: claims})
}

const loginPath = "/login"

// loginPage is where people say who they are.
type loginPage struct {
	storage  *storage
	callback callbackURL
}

var loginTemplate = template.Must(template.New("login").Parse(`<!doctype html>
<meta name="viewport" content="width=device-width"><title>Issuer of tests</title>
<form method="post" action="/login"><input type="hidden" name="id" value="{{.ID}}">
{{range .Users}}<button name="user" value="{{.}}">{{.}}</button>
{{end}}</form>
`))

func (l *loginPage) show(w http.ResponseWriter, r *http.Request) {
	_ = loginTemplate.Execute(w, map[string]any{"ID": r.FormValue("id"), "Users": l.storage.userNames()})
}

func (l *loginPage) submit(w http.ResponseWriter, r *http.Request) {
	id := r.FormValue("id")
	if !l.storage.login(id, r.FormValue("user")) {
		http.Error(w, "no such login or user", http.StatusForbidden)
		return
	}
	http.Redirect(w, r, l.callback(r.Context(), id), http.StatusFound)
}
