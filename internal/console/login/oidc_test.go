package login_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/access/oidc"
	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/internal/console/login"
	"github.com/msghandler/msghandler/test/issuer"
	"github.com/msghandler/msghandler/test/must"
)

// withIssuer is a gate whose issuer knows anna, an operator.
func withIssuer(t *testing.T, change ...func(*login.Config)) (*door, *issuer.Issuer) {
	t.Helper()
	from := issuer.Start(t)
	from.AddUser("anna", map[string]any{"roles": []string{"operator"}})
	source, err := oidc.New(t.Context(), oidc.Config{
		Issuer: from.URL, Audience: "msghandler", LoginClient: "console", NameClaim: "sub",
		RolesClaim: "roles", ProducersClaim: "producers",
	}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	d := open(t, false, append([]func(*login.Config){func(c *login.Config) {
		c.JWTs = source
		c.Issuer = &login.Issuer{
			Provider: source, Name: "issuer.example", ClientID: "console", ClientSecret: func() string { return "secret" },
			Scopes: []string{"openid", "profile"},
		}
	}}, change...)...)
	from.AddClient("console", "secret", d.URL+"/login/callback")
	deadline := time.Now().Add(20 * time.Second)
	for _, err := source.Endpoint(); err != nil; _, err = source.Endpoint() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	return d, from
}

// follow follows the redirect of an answer, out of the console.
func (b *browser) follow(answer *http.Response) *http.Response {
	b.Helper()
	to, err := answer.Location()
	if err != nil {
		b.Fatalf("%s leads nowhere: %v", answer.Status, err)
	}
	next, err := b.client.Get(to.String())
	must.Succeed(b, err)
	next.Body.Close()
	return next
}

// atIssuer begins a login and returns the address that the issuer sends a person back to, who has said a name there.
func (b *browser) atIssuer(next, user string) *url.URL {
	b.Helper()
	begun, _ := b.get("/login/oidc?" + url.Values{"next": {next}}.Encode())
	form := b.follow(begun)
	at, err := form.Location()
	if err != nil {
		b.Fatalf("the issuer answered %s", form.Status)
	}
	said, err := b.client.PostForm(at.Scheme+"://"+at.Host+"/login",
		url.Values{"id": {at.Query().Get("id")}, "user": {user}})
	must.Succeed(b, err)
	said.Body.Close()
	back, err := b.follow(said).Location()
	if err != nil {
		b.Fatalf("the issuer answered %s", said.Status)
	}
	return back
}

// comeBack sends the browser to the console with the answer of the issuer.
func (b *browser) comeBack(query url.Values) (*http.Response, string) {
	b.Helper()
	return b.get("/login/callback?" + query.Encode())
}

func TestIssuerBeginsASession(t *testing.T) {
	t.Parallel()
	d, from := withIssuer(t)
	b := d.browser(t)
	begun, _ := b.get("/login/oidc?next=%2Fmessages")
	to, err := begun.Location()
	if err != nil || !strings.HasPrefix(to.String(), from.URL) {
		t.Fatalf("got %s to %s, %v", begun.Status, to, err)
	}
	asked := to.Query()
	for name, want := range map[string]string{
		"response_type": "code", "client_id": "console", "redirect_uri": d.URL + "/login/callback",
		"scope": "openid profile", "code_challenge_method": "S256",
	} {
		if asked.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, asked.Get(name), want)
		}
	}
	if len(asked.Get("state")) < 20 || len(asked.Get("nonce")) < 20 || len(asked.Get("code_challenge")) != 43 ||
		asked.Get("state") == asked.Get("nonce") {
		t.Errorf("the issuer is asked %v", asked)
	}
	if set := begun.Header.Get("Set-Cookie"); !strings.Contains(set, "HttpOnly") ||
		!strings.Contains(set, "SameSite=Lax") || strings.Contains(set, asked.Get("state")) {
		t.Errorf("the cookie is %s", set)
	}
	answer, text := b.comeBack(b.atIssuer("/messages?state=dead", "anna").Query())
	if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != "/messages?state=dead" {
		t.Fatalf("got %s, %q; refused %q", answer.Status, text, d.refused)
	}
	b.shows("jwt:anna is operator")
	removed := answer.Header.Values("Set-Cookie")
	if len(removed) != 2 || !strings.Contains(removed[0], "msghandler_signin=;") {
		t.Errorf("the cookies are %q", removed)
	}
}

// An answer of the issuer counts once, in the browser that began the login, and with its own code only.
func TestAnswersOfOtherLoginsAreRefused(t *testing.T) {
	t.Parallel()
	d, from := withIssuer(t)
	from.AddUser("mallory", map[string]any{"roles": "admin"})
	victim, attacker := d.browser(t), d.browser(t)
	stolen := attacker.atIssuer("/", "mallory").Query()
	for name, attack := range map[string]func() url.Values{
		"without a login": func() url.Values { return stolen },
		"a state of another browser": func() url.Values {
			victim.get("/login/oidc")
			return stolen
		},
		"a code of another browser": func() url.Values {
			own := victim.atIssuer("/", "anna").Query()
			return url.Values{"state": own["state"], "code": stolen["code"]}
		},
		"no code":  func() url.Values { return url.Values{"state": victim.atIssuer("/", "anna").Query()["state"]} },
		"no state": func() url.Values { return url.Values{"code": victim.atIssuer("/", "anna").Query()["code"]} },
		"a refusal": func() url.Values {
			return url.Values{"state": victim.atIssuer("/", "anna").Query()["state"], "error": {"<b>access_denied"}}
		},
	} {
		answer, text := victim.comeBack(attack())
		if answer.StatusCode < 400 || strings.Contains(text, "<b>") {
			t.Errorf("%s: got %s, %q", name, answer.Status, text)
		}
		victim.isOut()
	}
	once := victim.atIssuer("/", "anna").Query()
	cookies := victim.jar.Cookies(mustParse(t, d.URL))
	if answer, text := victim.comeBack(once); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("got %s, %q; refused %q", answer.Status, text, d.refused)
	}
	again := d.browser(t)
	again.jar.SetCookies(mustParse(t, d.URL), cookies)
	if answer, text := again.comeBack(once); answer.StatusCode < 400 {
		t.Errorf("the same answer again: got %s, %q", answer.Status, text)
	}
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	must.Succeed(t, err)
	return u
}

func TestLoginWhileIssuerIsAway(t *testing.T) {
	t.Parallel()
	d, from := withIssuer(t)
	b := d.browser(t)
	back := b.atIssuer("/messages", "anna").Query()
	from.Fail(true)
	answer, text := b.comeBack(back)
	if answer.StatusCode != http.StatusBadGateway || !strings.Contains(text, "The login by issuer.example failed") ||
		!strings.Contains(text, "next /messages") {
		t.Errorf("got %s, %q", answer.Status, text)
	}
	b.isOut()
}

// While the issuer has never answered, the console cannot judge a JWT: that is no wrong guess.
func TestUnavailableIssuersJWTIsRetried(t *testing.T) {
	t.Parallel()
	from := issuer.Start(t)
	from.Fail(true)
	source, err := oidc.New(t.Context(), oidc.Config{
		Issuer: from.URL, Audience: "msghandler", NameClaim: "sub",
	}, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	d := open(t, false, func(c *login.Config) {
		c.JWTs, c.Issuer = source, &login.Issuer{Provider: source, Name: "issuer.example", ClientID: "console"}
		c.Authenticator, err = access.NewAuthenticator(access.Rules{}, source)
		must.Succeed(t, err)
	})
	b := d.browser(t)
	jwt := from.Sign(from.Claims("anna", "msghandler", nil), nil)
	for range 12 {
		if answer, text := b.logIn(jwt, "/"); answer.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("got %s, %q", answer.Status, text)
		}
		answer, text := b.get("/", "Authorization", "Bearer "+jwt)
		if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
			t.Fatalf("got %s, %q", answer.Status, text)
		}
	}
	if answer, text := b.get("/login/oidc"); answer.StatusCode != http.StatusBadGateway {
		t.Errorf("got %s, %q", answer.Status, text)
	}
}

// A person with too many rights for a cookie is told so.
func TestTooLongSessionIsRefused(t *testing.T) {
	t.Parallel()
	d, from := withIssuer(t)
	var producers []string
	for i := range 120 {
		producers = append(producers, fmt.Sprintf("producer-with-a-long-name-%d", i))
	}
	from.AddUser("olga", map[string]any{"producers": producers, "roles": "viewer"})
	b := d.browser(t)
	answer, text := b.comeBack(b.atIssuer("/", "olga").Query())
	if answer.StatusCode != http.StatusBadRequest || !strings.Contains(text, "too long for a cookie") {
		t.Errorf("got %s, %q; refused %q", answer.Status, text, d.refused)
	}
	b.isOut()
}

// A JWT of the form ends its session with itself, and works as a bearer token as well.
func TestJWTBeginsASession(t *testing.T) {
	t.Parallel()
	d, from := withIssuer(t)
	jwt := from.Sign(from.Claims("carl", "msghandler", map[string]any{"roles": "reader"}), nil)
	b := d.browser(t)
	answer, text := b.logIn(jwt, "/")
	if answer.StatusCode != http.StatusSeeOther || !strings.Contains(answer.Header.Get("Set-Cookie"), "Max-Age=36") {
		t.Errorf("got %s, %q, %v; refused %q", answer.Status, text, answer.Header, d.refused)
	}
	b.shows("jwt:carl is reader")
	other := from.Sign(from.Claims("carl", "another service", map[string]any{"roles": "admin"}), nil)
	if answer, _ := d.browser(t).logIn(other, "/"); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a JWT for another audience: got %s", answer.Status)
	}
}

// The issuer sends people back to the public name. A login that begins elsewhere goes there first, and once only: a
// proxy in front of the console may replace the name.
func TestLoginBeginsAtThePublicName(t *testing.T) {
	t.Parallel()
	for _, public := range []string{
		"https://console.example.com", "https://Console.example.com:443/", "HTTPS://console.example.com",
	} {
		d, from := withIssuer(t, func(c *login.Config) { c.PublicURL = public })
		b := d.browser(t)
		answer, _ := b.get("/login/oidc?next=%2Fmessages")
		there := "https://console.example.com/login/oidc?next=%2Fmessages&public=1"
		if got := answer.Header.Get("Location"); got != there {
			t.Errorf("%s: got %s to %q", public, answer.Status, got)
		}
		for _, request := range [][]string{
			{"/login/oidc", "Host", "console.example.com"}, // by a browser
			{"/login/oidc?public=1"},                       // by a proxy that replaces the name
		} {
			answer, _ = b.get(request[0], request[1:]...)
			if got := answer.Header.Get("Location"); !strings.HasPrefix(got, from.URL) {
				t.Errorf("%s: %q was sent to %q, not to the issuer", public, request, got)
			}
		}
	}
}

// Guesses of tokens delay no login by the issuer.
func TestGuessesLeaveTheIssuerAlone(t *testing.T) {
	t.Parallel()
	d, _ := withIssuer(t)
	for range 20 {
		d.browser(t).logIn(tokenfile.NewSecret(), "/")
	}
	b := d.browser(t)
	if answer, _ := b.comeBack(b.atIssuer("/", "anna").Query()); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("got %s", answer.Status)
	}
}

// returnWith comes back to a login that this browser has begun.
func (b *browser) returnWith(answer url.Values) *http.Response {
	b.Helper()
	begun, _ := b.get("/login/oidc")
	to, err := begun.Location()
	must.Succeed(b, err)
	answer.Set("state", to.Query().Get("state"))
	back, _ := b.comeBack(answer)
	return back
}

// A stranger's failed logins hold up no person behind the same address, and neither does an outage of the issuer or a
// person who declines, however often. A flood of wrong codes is held up before it reaches the issuer.
func TestFailedLoginsLeaveOthersAlone(t *testing.T) {
	t.Parallel()
	d, from := withIssuer(t)
	stranger := d.browser(t)
	logsIn := func(after string) {
		t.Helper()
		b := d.browser(t)
		if answer, text := b.comeBack(b.atIssuer("/", "anna").Query()); answer.StatusCode != http.StatusSeeOther {
			t.Fatalf("after %s: got %s, %q", after, answer.Status, text)
		}
	}
	const flood = 600
	for range 100 {
		stranger.returnWith(url.Values{"code": {"wrong"}})
	}
	logsIn("wrong codes")
	for range flood {
		stranger.returnWith(url.Values{"error": {"access_denied"}})
	}
	from.Fail(true)
	for range flood {
		stranger.returnWith(url.Values{"code": {"right"}})
	}
	from.Fail(false)
	logsIn("refusals of people and an outage")
	for range flood - 100 {
		stranger.returnWith(url.Values{"code": {"wrong"}})
	}
	if answer := stranger.returnWith(url.Values{"code": {"wrong"}}); answer.StatusCode != http.StatusTooManyRequests {
		t.Errorf("after %d wrong codes: got %s", flood, answer.Status)
	}
}

// A stranger who returns again and again without a login writes no line each time.
func TestFailedLoginsWriteFewLines(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	d, _ := withIssuer(t, func(c *login.Config) { c.Logger = slog.New(slog.NewTextHandler(&said, nil)) })
	stranger := d.browser(t)
	begun := time.Now()
	const returns = 100
	for range returns {
		stranger.returnWith(url.Values{"error": {"access_denied"}})
	}
	most := 1 + int(time.Since(begun)/(10*time.Second))
	if lines := strings.Count(said.String(), "login by the issuer failed"); lines == 0 || lines > most {
		t.Errorf("%d returns wrote %d lines, want %d at most:\n%.500s", returns, lines, most, said.String())
	}
}

// A person without a role begins no session, and the refusal names the person.
func TestNoSessionWithoutARole(t *testing.T) {
	t.Parallel()
	sessions, refused := 0, access.Identity{}
	d, from := withIssuer(t, func(c *login.Config) {
		c.LoggedIn = func(*http.Request, access.Identity) { sessions++ }
		c.Refused = func(r *http.Request, _ string) { refused = access.From(r.Context()) }
	})
	from.AddUser("shop", nil)
	b := d.browser(t)
	answer, text := b.comeBack(b.atIssuer("/", "shop").Query())
	if answer.StatusCode != http.StatusForbidden || !strings.Contains(text, "You have no role here") {
		t.Errorf("got %s, %q", answer.Status, text)
	}
	if sessions != 0 || refused.Name != "jwt:shop" {
		t.Errorf("%d sessions began, and the refusal names %q", sessions, refused.Name)
	}
	b.isOut()
}
