package login_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/internal/console/login"
	"github.com/msghandler/msghandler/test/must"
)

// door is a gate whose page behind it says who has come.
type door struct {
	*httptest.Server
	tokens  string // the path of the token file
	refused []string
	// anna and bob are the tokens of a viewer and of an admin.
	anna, bob string
}

// open serves a gate, by HTTPS where secure.
func open(t *testing.T, secure bool, change ...func(*login.Config)) *door {
	t.Helper()
	d := &door{tokens: filepath.Join(t.TempDir(), "tokens"), anna: tokenfile.NewSecret(), bob: tokenfile.NewSecret()}
	d.write(t, line("anna", d.anna, "role=viewer"), line("bob", d.bob, "role=admin"))
	file, err := tokenfile.Open(d.tokens, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	rules := access.Rules{Viewers: []string{"proxy:*"}, Operators: []string{"proxy:olga"}}
	authenticator, err := access.NewAuthenticator(rules, file)
	must.Succeed(t, err)
	config := login.Config{
		Authenticator: authenticator, Tokens: file, Logger: slog.New(slog.DiscardHandler),
		Show: func(w http.ResponseWriter, _ *http.Request, view login.View) {
			w.WriteHeader(view.Status)
			fmt.Fprintf(w, "login: %s; next %s", view.Problem, view.Next)
		},
		Refused: func(_ *http.Request, why string) { d.refused = append(d.refused, why) },
	}
	for _, f := range change {
		f(&config)
	}
	gate := login.New(config)
	mux := http.NewServeMux()
	gate.Register(mux)
	mux.Handle("/", gate.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		identity := access.From(r.Context())
		fmt.Fprintf(w, "%s is %s", identity.Name, identity.Role)
	})))
	if secure {
		d.Server = httptest.NewTLSServer(mux)
	} else {
		d.Server = httptest.NewServer(mux)
	}
	t.Cleanup(d.Close)
	return d
}

func line(name, secret, fields string) string {
	return fmt.Sprintf("%s sha256:%x %s\n", name, sha256.Sum256([]byte(secret)), fields)
}

func (d *door) write(t *testing.T, lines ...string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(d.tokens, []byte(strings.Join(lines, "")), 0o600))
}

// browser is a client with cookies that follows no redirect.
func (d *door) browser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must.Succeed(t, err)
	client := *d.Client()
	client.Jar = jar
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &browser{t, d, &client, jar}
}

type browser struct {
	*testing.T
	door   *door
	client *http.Client
	jar    *cookiejar.Jar
}

// do sends a request, with headers given as pairs, and returns the answer and its text.
func (b *browser) do(method, path string, form url.Values, headers ...string) (*http.Response, string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.door.URL+path, strings.NewReader(form.Encode()))
	must.Succeed(b, err)
	r.Header.Set("Accept", "text/html")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	answer, err := b.client.Do(r)
	must.Succeed(b, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must.Succeed(b, err)
	return answer, string(text)
}

func (b *browser) get(path string, headers ...string) (*http.Response, string) {
	b.Helper()
	return b.do(http.MethodGet, path, nil, headers...)
}

func (b *browser) logIn(token, next string) (*http.Response, string) {
	b.Helper()
	return b.do(http.MethodPost, "/login", url.Values{"token": {token}, "next": {next}})
}

// shows fails the test unless the page says who has come.
func (b *browser) shows(want string, headers ...string) {
	b.Helper()
	if answer, text := b.get("/", headers...); text != want {
		b.Errorf("got %s, %q, want %q", answer.Status, text, want)
	}
}

// isOut fails the test unless the browser is sent to the login.
func (b *browser) isOut() {
	b.Helper()
	if answer, text := b.get("/messages?state=dead"); answer.StatusCode != http.StatusSeeOther ||
		answer.Header.Get("Location") != "/login?next=%2Fmessages%3Fstate%3Ddead" {
		b.Errorf("got %s to %q, %q", answer.Status, answer.Header.Get("Location"), text)
	}
}

// session is the cookie of the session, as the browser holds it.
func (b *browser) session() *http.Cookie {
	b.Helper()
	u, err := url.Parse(b.door.URL)
	must.Succeed(b, err)
	for _, cookie := range b.jar.Cookies(u) {
		if strings.HasSuffix(cookie.Name, "msghandler_session") {
			return cookie
		}
	}
	b.Fatal("there is no session")
	return nil
}

func TestTokenBeginsASession(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		d := open(t, secure)
		b := d.browser(t)
		b.isOut()
		answer, text := b.logIn(d.anna, "/messages?state=dead")
		if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != "/messages?state=dead" {
			t.Fatalf("got %s, %q", answer.Status, text)
		}
		set := answer.Header.Get("Set-Cookie")
		for attribute, want := range map[string]bool{
			"HttpOnly": true, "SameSite=Lax": true, "Path=/": true, "Max-Age=28799": true, "Secure": secure,
			"__Host-msghandler_session=": secure, "Domain": false,
		} {
			if strings.Contains(set, attribute) != want {
				t.Errorf("secure %t: the cookie is %s", secure, set)
			}
		}
		if strings.Contains(set, d.anna) {
			t.Error("the cookie holds the token")
		}
		b.shows("token:anna is viewer")
		if answer, _ := b.do(http.MethodPost, "/logout", nil); answer.Header.Get("Location") != "/login" {
			t.Errorf("logout: got %s", answer.Status)
		}
		b.isOut()
	}
}

// A browser that has come by HTTPS to a proxy in front of the console gets the cookie of HTTPS.
func TestSessionBehindEncryptingProxyIsSecure(t *testing.T) {
	t.Parallel()
	d := open(t, false, func(c *login.Config) { c.PublicURL = "https://console.example.com" })
	for host, secure := range map[string]bool{"console.example.com": true, "127.0.0.1": false} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL+"/login",
			strings.NewReader(url.Values{"token": {d.anna}}.Encode()))
		must.Succeed(t, err)
		r.Host = host
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer, err := d.browser(t).client.Do(r)
		must.Succeed(t, err)
		answer.Body.Close()
		set := answer.Header.Get("Set-Cookie")
		if strings.Contains(set, "Secure") != secure || strings.HasPrefix(set, "__Host-") != secure {
			t.Errorf("%s: the cookie is %s", host, set)
		}
	}
}

func TestBearerTokenWorksOnEveryPath(t *testing.T) {
	t.Parallel()
	d := open(t, false)
	b := d.browser(t)
	b.shows("token:bob is admin", "Authorization", "Bearer "+d.bob)
	b.shows("token:anna is viewer", "Authorization", "bearer  "+d.anna)
	for authorization, want := range map[string]int{
		"Bearer " + tokenfile.NewSecret(): http.StatusUnauthorized,
		"Bearer x":                        http.StatusUnauthorized,
		"Basic YTpi":                      http.StatusSeeOther, // of a proxy's own login
	} {
		answer, text := b.get("/", "Authorization", authorization)
		if answer.StatusCode != want || strings.Contains(text, "is ") && want != http.StatusSeeOther &&
			!strings.Contains(text, "not valid") {
			t.Errorf("%s: got %s, %q", authorization, answer.Status, text)
		}
	}
	answer, _ := b.get("/metrics", "Accept", "text/plain")
	if answer.StatusCode != http.StatusSeeOther {
		t.Errorf("got %s", answer.Status) // text/html is accepted too
	}
	r, err := http.Get(d.URL + "/metrics")
	must.Succeed(t, err)
	r.Body.Close()
	if r.StatusCode != http.StatusUnauthorized || r.Header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("a program without a token: got %s, %v", r.Status, r.Header)
	}
}

// Every reason has the same answer, so a caller does not learn which names or tokens exist.
func TestRefusedTokensLookAlike(t *testing.T) {
	t.Parallel()
	d := open(t, false)
	old := tokenfile.NewSecret()
	d.write(t, line("anna", d.anna, "role=viewer"), line("old", old, "expires=2020-01-01T00:00:00Z"))
	file, err := tokenfile.Open(d.tokens, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	d = open(t, false, func(c *login.Config) { c.Tokens = file })
	var texts []string
	for _, token := range []string{tokenfile.NewSecret(), old, "anna", "", d.anna + "x"} {
		answer, text := d.browser(t).logIn(token, "/")
		if answer.StatusCode != http.StatusUnauthorized || answer.Header.Get("Set-Cookie") != "" {
			t.Errorf("got %s, %v", answer.Status, answer.Header)
		}
		texts = append(texts, text)
	}
	for _, text := range texts {
		if text != texts[0] {
			t.Errorf("the answers are %q", texts)
		}
	}
	if len(d.refused) != len(texts) || !strings.Contains(strings.Join(d.refused, "\n"), "the token old expired") {
		t.Errorf("the log would say %q", d.refused)
	}
}

func TestRevokedTokenEndsItsSession(t *testing.T) {
	t.Parallel()
	d := open(t, false)
	anna, bob := d.browser(t), d.browser(t)
	anna.logIn(d.anna, "/")
	bob.logIn(d.bob, "/")
	// The name lives on with another token, which is of another person.
	d.write(t, line("anna", tokenfile.NewSecret(), "role=admin"), line("bob", d.bob, "role=reader"))
	deadline := time.Now().Add(20 * time.Second)
	for answer, _ := anna.get("/"); answer.StatusCode != http.StatusSeeOther; answer, _ = anna.get("/") {
		if time.Now().After(deadline) {
			t.Fatal("the session goes on")
		}
	}
	anna.isOut()
	bob.shows("token:bob is reader")
}

func TestForgedSessionsAreRefused(t *testing.T) {
	t.Parallel()
	text := "the secret of two coordinators"
	secret := func() string { return text }
	d := open(t, false, func(c *login.Config) { c.Secret = secret })
	b := d.browser(t)
	b.logIn(d.anna, "/")
	good := b.session()
	with := func(d *door, name, value string) string {
		_, text := d.browser(t).get("/", "Cookie", name+"="+value)
		return text
	}
	replica := open(t, false, func(c *login.Config) { c.Secret = secret })
	replica.write(t, line("anna", d.anna, "role=reader"))
	file, err := tokenfile.Open(replica.tokens, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	replica = open(t, false, func(c *login.Config) { c.Secret, c.Tokens = secret, file })
	if text := with(replica, good.Name, good.Value); text != "token:anna is reader" {
		t.Errorf("another coordinator with the same secret: got %q", text)
	}
	if text := with(open(t, false), good.Name, good.Value); strings.Contains(text, " is ") {
		t.Errorf("another secret: got %q", text)
	}
	elsewhere := open(t, false, func(c *login.Config) {
		c.Secret, c.Tokens, c.Installation = secret, file, []string{"another"}
	})
	if text := with(elsewhere, good.Name, good.Value); strings.Contains(text, " is ") {
		t.Errorf("another installation with the same secret: got %q", text)
	}
	id := ""
	unnamed := open(t, false, func(c *login.Config) {
		c.Secret, c.Tokens, c.InstallationID = secret, file, func() string { return id }
	})
	if text := with(unnamed, good.Name, good.Value); strings.Contains(text, " is ") {
		t.Errorf("an installation whose ID is unknown yet: got %q", text)
	}
	early := unnamed.browser(t)
	early.logIn(d.anna, "/")
	early.shows("token:anna is reader")
	id = "another"
	early.shows("token:anna is reader")
	if text := with(unnamed, good.Name, good.Value); strings.Contains(text, " is ") {
		t.Errorf("an installation with another ID: got %q", text)
	}
	for i := range good.Value {
		changed := []byte(good.Value)
		if changed[i]++; changed[i] > 'z' {
			changed[i] = '0'
		}
		if text := with(d, good.Name, string(changed)); strings.Contains(text, " is ") {
			t.Fatalf("a cookie with another byte %d: got %q", i, text)
		}
	}
	for name, value := range map[string]string{
		good.Name:             good.Value[:len(good.Value)-8],
		"msghandler_signin":   good.Value,
		"__Host-" + good.Name: good.Value,
	} {
		if text := with(d, name, value); strings.Contains(text, " is ") {
			t.Errorf("%s: got %q", name, text)
		}
	}
	if text := with(d, good.Name, strings.Repeat("A", 8000)); strings.Contains(text, " is ") {
		t.Errorf("a long cookie: got %q", text)
	}
	text = "the next secret of two coordinators"
	if shown := with(d, good.Name, good.Value); strings.Contains(shown, " is ") {
		t.Errorf("after a change of the secret: got %q", shown)
	}
}

func TestSessionEndsInTime(t *testing.T) {
	t.Parallel()
	d := open(t, false, func(c *login.Config) { c.Age = time.Nanosecond })
	b := d.browser(t)
	b.logIn(d.anna, "/")
	b.session() // the browser would send it for a second
	b.isOut()
}

func TestLoginLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	d := open(t, false)
	for next, want := range map[string]string{
		"/messages?state=dead&error=a+b": "/messages?state=dead&error=a+b", "/": "/", "": "/",
		"//evil.example": "/", "///evil.example": "/", `/\evil.example`: "/", `\\evil.example`: "/",
		"https://evil.example": "/", "https:evil.example": "/", "javascript:alert(1)": "/", "evil.example": "/",
		"/\t/evil.example": "/", "/\n/evil.example": "/", " //evil.example": "/", "/login?next=/": "/", "/login/oidc": "/",
		"/logout": "/", "/" + strings.Repeat("x", 2000): "/", "http://user@/": "/", "//user:pass@": "/", "?a": "/",
		"/%0a": "/%0a",
	} {
		answer, text := d.browser(t).logIn(d.anna, next)
		if got := answer.Header.Get("Location"); answer.StatusCode != http.StatusSeeOther || got != want {
			t.Errorf("%q: got %s to %q, want %q: %s", next, answer.Status, got, want, text)
		}
	}
}

func TestGuessesAreHeldUp(t *testing.T) {
	t.Parallel()
	d := open(t, false)
	held := func() int {
		for i := range 50 {
			answer, text := d.browser(t).logIn(tokenfile.NewSecret(), "/")
			if answer.StatusCode == http.StatusTooManyRequests {
				if !strings.Contains(text, "Wait a minute") {
					t.Errorf("got %q", text)
				}
				return i
			}
		}
		return -1
	}
	for range 20 { // a valid token is no guess
		d.browser(t).logIn(d.anna, "/")
	}
	if n := held(); n != 10 {
		t.Errorf("%d guesses were answered", n)
	}
	if answer, _ := d.browser(t).logIn(d.anna, "/"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("others' guesses hold up a valid token: got %s", answer.Status)
	}
	answer, _ := d.browser(t).get("/", "Authorization", "Bearer "+tokenfile.NewSecret())
	if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") != "60" {
		t.Errorf("a guess by bearer token: got %s, %v", answer.Status, answer.Header)
	}
	d.browser(t).shows("token:anna is viewer", "Authorization", "Bearer "+d.anna)
}

func TestOnlyTrustedProxiesNameUsers(t *testing.T) {
	t.Parallel()
	trusting := func(networks ...string) func(*login.Config) {
		return func(c *login.Config) {
			c.Proxy = &login.Proxy{Header: "X-Forwarded-User"}
			for _, network := range networks {
				c.Proxy.Trusted = append(c.Proxy.Trusted, netip.MustParsePrefix(network))
			}
		}
	}
	d := open(t, false, trusting("127.0.0.0/8"))
	b := d.browser(t)
	b.shows("proxy:paul is viewer", "x-forwarded-user", " paul ")
	b.shows("proxy:olga is operator", "X-Forwarded-User", "olga")
	b.shows("proxy:paul is viewer", "X-Forwarded-User", "paul", "Authorization", "Bearer the-proxys-own")
	b.shows("token:bob is admin", "X-Forwarded-User", "", "Authorization", "Bearer "+d.bob)
	b.isOut()
	for _, headers := range [][]string{
		{"X-Forwarded-User", "paul", "X-Forwarded-User", "olga"},
		{"X-Forwarded-User", strings.Repeat("x", 201)},
		{"X-Forwarded-User", "pa\xfful"},
		{"X-Forwarded-User", "paul\u202etxt"},
	} {
		if answer, text := b.get("/", headers...); answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("%q: got %s, %q", headers, answer.Status, text)
		}
	}
	d = open(t, false, trusting("10.0.0.0/8", "::1/128"))
	b = d.browser(t)
	if answer, text := b.get("/", "X-Forwarded-User", "olga"); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("a forged header: got %s, %q", answer.Status, text)
	}
	b.logIn(d.anna, "/")
	b.shows("token:anna is viewer", "X-Forwarded-User", "olga")
}
