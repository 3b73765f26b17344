package app_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/issuer"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// tokenOf writes a file with a token, and returns both.
func tokenOf(t *testing.T, name, fields string) (file, token string) {
	t.Helper()
	file, token = filepath.Join(t.TempDir(), "tokens"), tokenfile.NewSecret()
	line := fmt.Sprintf("%s sha256:%x %s\n", name, sha256.Sum256([]byte(token)), fields)
	must.Succeed(t, os.WriteFile(file, []byte(line), 0o600))
	return file, token
}

func secretFile(t *testing.T, content string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "secret")
	must.Succeed(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// visit sends a request, or a form, to the console with headers given as pairs.
func (r *running) visit(t *testing.T, client *http.Client, path string, form url.Values, headers ...string) (
	status int, page string,
) {
	t.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(
		t.Context(), method, "http://"+r.HTTPAddr()+path, strings.NewReader(form.Encode()))
	must.Succeed(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "text/html")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer, err := client.Do(request)
	must.Succeed(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must.Succeed(t, err)
	return answer.StatusCode, string(body)
}

// browser is a client with cookies.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must.Succeed(t, err)
	return &http.Client{Jar: jar}
}

// dead leaves a dead message with a body.
func (r *running) dead(t *testing.T) {
	t.Helper()
	p := startOrders(t)
	request := half(p, "1")
	request.Message.Exchange, request.Message.Headers = "no-such-exchange", map[string]string{"tenant": "nordic"}
	client := r.producers(t)
	if _, err := client.SendHalfMessage(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Submit(t.Context(), &msghandlerv1.SubmitRequest{Producer: "orders", Id: "1"}); err != nil {
		t.Fatal(err)
	}
	admin := r.admin(t)
	servers.Eventually(t, 20*time.Second, "the message is dead", func() bool {
		list, err := admin.ListMessages(t.Context(),
			&adminv1.ListMessagesRequest{Filter: &adminv1.MessageFilter{State: msghandlerv1.State_STATE_DEAD}})
		return err == nil && len(list.GetRecords()) == 1
	})
}

const deadMessage = "/message?producer=orders&id=1"

// refusedOnce lets a message die at the first refusal.
func refusedOnce(c *config.Config) { c.Send.Backoff = []time.Duration{10 * time.Millisecond} }

// A person logs in with a token, discards a message, and is named in the log.
func TestLogNamesWhoLogsIn(t *testing.T) {
	t.Parallel()
	file, token := tokenOf(t, "anna", "role=admin")
	r := start(t, settings(refusedOnce, func(c *config.Config) {
		c.Access.TokenFile, c.Access.Anonymous = file, true // producers show nothing here
	}))
	r.awaitReady(t)
	r.dead(t)
	b := browser(t)
	status, page := r.visit(t, b, "/login", url.Values{"token": {token}, "next": {deadMessage}})
	if status != http.StatusOK || !strings.Contains(page, "order 1") || !strings.Contains(page, "token:anna") {
		t.Fatalf("got %d:\n%s", status, page)
	}
	_, page = r.visit(t, b, "/change", url.Values{"action": {"discard"}, "state": {"dead"}, "name": {"orders/1"}})
	status, page = r.visit(t, b, "/change/do", url.Values{
		"selection": {hidden(t, page, "selection")}, "token": {hidden(t, page, "token")}, "reason": {"a test"},
	})
	if status != http.StatusOK || !strings.Contains(page, "1 message discarded") {
		t.Errorf("got %d:\n%s", status, page)
	}
	if log := r.log.String(); !strings.Contains(log, `action=discard result=done`) ||
		!strings.Contains(log, "by=token:anna") || !strings.Contains(log, `from=127.0.0.1:`) {
		t.Errorf("the log does not name anna:\n%s", log)
	}
}

// With a token file, the metrics and the pages need a token, and the health does not.
func TestConsoleWithTokensNeedsOne(t *testing.T) {
	t.Parallel()
	file, token := tokenOf(t, "prometheus", "role=viewer")
	r := start(t, settings(func(c *config.Config) { c.Access.TokenFile = file }))
	for path, want := range map[string]int{
		"/metrics": http.StatusUnauthorized, "/": http.StatusUnauthorized, "/healthz": http.StatusOK,
		"/readyz": http.StatusOK, "/login": http.StatusOK,
	} {
		status, page := r.visit(t, http.DefaultClient, path, nil, "Accept", "*/*")
		if path == "/readyz" && status == http.StatusServiceUnavailable {
			continue // it is still starting
		}
		if status != want {
			t.Errorf("%s: got %d:\n%s", path, status, page)
		}
		status, page = r.visit(t, http.DefaultClient, path, nil, "Authorization", "Bearer "+token)
		if path != "/readyz" && status != http.StatusOK {
			t.Errorf("%s with a token: got %d:\n%s", path, status, page)
		}
	}
	status, page := r.visit(t, http.DefaultClient, "/change?action=discard&all=1&state=dead", nil,
		"Authorization", "Bearer "+token)
	if status != http.StatusForbidden || !strings.Contains(page, "needs the role admin") {
		t.Errorf("got %d:\n%s", status, page)
	}
	if log := r.log.String(); !strings.Contains(log, `result=refused`) {
		t.Errorf("the log does not tell of the refusal:\n%s", log)
	}
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	servers.Eventually(t, time.Minute, "the token is revoked", func() bool {
		status, _ := r.visit(t, http.DefaultClient, "/metrics", nil, "Authorization", "Bearer "+token)
		return status == http.StatusUnauthorized
	})
	if log := r.log.String(); !strings.Contains(log, `action=token result=done`) ||
		!strings.Contains(log, `removed prometheus`) {
		t.Errorf("the audit trail does not tell of the revocation:\n%s", log)
	}
}

// Where the API asks for certificates, a console without a login is no way around them.
func TestConsoleIsNoWayAroundCertificates(t *testing.T) {
	t.Parallel()
	authority := certstest.NewAuthority(t)
	for name, change := range map[string]func(*config.Config){
		"authorities": func(*config.Config) {},
		"roles":       func(c *config.Config) { c.Access.Admins = []string{"dns:*.ops.shop"} },
	} {
		r := start(t, settings(func(c *config.Config) {
			c.GRPC.Certificates.Cert, c.GRPC.Certificates.Key = authority.Issue("coordinator.shop", "127.0.0.1")
			c.GRPC.Certificates.CA = authority.File
		}, change))
		status, page := r.visit(t, http.DefaultClient, "/", nil)
		if status != http.StatusOK || !strings.Contains(page, "Set access.token_file, or http.oidc_client_id") {
			t.Errorf("%s: got %d:\n%s", name, status, page)
		}
		for _, action := range []string{"retry", "discard"} {
			status, page := r.visit(t, http.DefaultClient, "/change",
				url.Values{"action": {action}, "state": {"dead"}, "name": {"orders/1"}})
			if status != http.StatusForbidden {
				t.Errorf("%s, %s: got %d:\n%s", name, action, status, page)
			}
		}
	}
}

func TestNoticeTellsThatConsoleIsOpen(t *testing.T) {
	t.Parallel()
	const notice = "access.anonymous is set"
	for addr, want := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true, ":0": true} {
		r := start(t, settings(func(c *config.Config) { c.HTTP.Addr, c.Access.Anonymous = addr, true }))
		_, port, _ := strings.Cut(strings.TrimPrefix(r.HTTPAddr(), "[::]"), ":")
		answer, err := http.Get("http://127.0.0.1:" + port + "/messages")
		must.Succeed(t, err)
		page, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || strings.Contains(string(page), notice) != want {
			t.Errorf("%s: %v, want the notice %t:\n%s", addr, err, want, page)
		}
	}
}

// Coordinators with the same secret and the same Redis share their sessions, over restarts. Those of another Redis do
// not, with all-alike settings.
func TestSessionHoldsOnEachCoordinator(t *testing.T) {
	t.Parallel()
	file, token := tokenOf(t, "anna", "role=viewer")
	redis, foreign := servers.Redis(t), servers.Redis(t)
	secret := secretFile(t, strings.Repeat("s", 32))
	startOn := func(of *servers.RedisServer) *running {
		r := start(t, settings(func(c *config.Config) {
			c.Access.TokenFile, c.HTTP.SessionKeyFile = file, secret
			c.Redis.URL = of.URL()
		}))
		r.awaitReady(t)
		return r
	}
	b := browser(t)
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := b.PostForm("http://"+startOn(redis).HTTPAddr()+"/login", url.Values{"token": {token}})
	must.Succeed(t, err)
	answer.Body.Close()
	if cookie := answer.Header.Get("Set-Cookie"); !strings.Contains(cookie, "Max-Age=28799") {
		t.Errorf("the session has not an age of 8 h: %s", cookie)
	}
	if _, page := startOn(foreign).visit(t, b, "/", nil); strings.Contains(page, "token:anna") {
		t.Errorf("a coordinator of another Redis takes the session:\n%s", page)
	}
	other := startOn(redis)
	if status, page := other.visit(t, b, "/", nil); status != http.StatusOK || !strings.Contains(page, "token:anna") {
		t.Errorf("got %d:\n%s", status, page)
	}
	if _, page := other.visit(t, browser(t), "/", nil); strings.Contains(page, "token:anna") {
		t.Errorf("another browser has the session:\n%s", page)
	}
}

// A copy of the cookie ends with the logout, at each coordinator, and the person may log in again.
func TestCopiedCookieEndsAtLogout(t *testing.T) {
	t.Parallel()
	file, token := tokenOf(t, "anna", "role=viewer")
	secret := secretFile(t, strings.Repeat("s", 32))
	redis := servers.Redis(t)
	change := func(c *config.Config) {
		c.Access.TokenFile, c.HTTP.SessionKeyFile, c.Redis.URL = file, secret, redis.URL()
	}
	first, other := start(t, settings(change)), start(t, settings(change))
	first.awaitReady(t)
	other.awaitReady(t)
	b, thief := browser(t), browser(t)
	first.visit(t, b, "/login", url.Values{"token": {token}})
	at := &url.URL{Scheme: "http", Host: first.HTTPAddr(), Path: "/"}
	thief.Jar.SetCookies(at, b.Jar.Cookies(at))
	all := map[*running]string{first: "the first", other: "the other"}
	holds := func(client *http.Client, want bool) {
		t.Helper()
		for r, name := range all {
			if _, page := r.visit(t, client, "/", nil); strings.Contains(page, "token:anna") != want {
				t.Errorf("at %s, want %t:\n%s", name, want, page)
			}
		}
	}
	holds(thief, true)
	first.visit(t, b, "/logout", url.Values{})
	thief.Jar.SetCookies(at, b.Jar.Cookies(at)) // none
	holds(thief, false)
	first.visit(t, b, "/login", url.Values{"token": {token}})
	holds(b, true)
}

// A session holds what a token of the issuer said, so it holds only where that token would count.
func TestSessionHoldsForItsAudienceOnly(t *testing.T) {
	t.Parallel()
	from := issuer.Start(t)
	secret := secretFile(t, strings.Repeat("s", 32))
	redis := servers.Redis(t)
	b := browser(t)
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, of := range []struct {
		audience string
		holds    bool
	}{{"shop", true}, {"payroll", false}} {
		r := start(t, settings(func(c *config.Config) {
			c.Access.OIDC.Issuer, c.Access.OIDC.Audience, c.HTTP.SessionKeyFile = from.URL, of.audience, secret
			c.Redis.URL = redis.URL()
		}))
		r.awaitReady(t)
		if of.holds {
			form := url.Values{"token": {from.JWT("anna", of.audience, map[string]any{"roles": "reader"})}}
			servers.Eventually(t, 20*time.Second, "the token is accepted", func() bool {
				status, _ := r.visit(t, b, "/login", form)
				return status == http.StatusSeeOther
			})
		}
		if _, page := r.visit(t, b, "/", nil); strings.Contains(page, "jwt:anna") != of.holds {
			t.Errorf("where the audience is %s, want %t:\n%s", of.audience, of.holds, page)
		}
	}
}

// A person logs in by an issuer with a certificate authority of its own, to which the console shows its secret.
func TestPersonLogsInByTheIssuer(t *testing.T) {
	t.Parallel()
	from := issuer.StartTLS(t)
	from.AddUser("anna", map[string]any{"roles": "reader"})
	secret := secretFile(t, "s3cret\n")
	r := start(t, settings(func(c *config.Config) {
		c.Access.OIDC.Issuer, c.Access.OIDC.CA, c.Access.OIDC.Audience = from.URL, from.CA, "msghandler"
		c.HTTP.OIDCClientID, c.HTTP.OIDCClientSecretFile = "console", secret
	}))
	from.AddClient("console", "s3cret", "http://"+r.HTTPAddr()+"/login/callback")
	b := browser(t)
	b.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities(t, from.CA)}, DisableKeepAlives: true}
	var at *url.URL
	servers.Eventually(t, 20*time.Second, "the console leads to the issuer", func() bool {
		answer, err := b.Get("http://" + r.HTTPAddr() + "/login/oidc")
		must.Succeed(t, err)
		answer.Body.Close()
		at = answer.Request.URL
		return "https://"+at.Host == from.URL
	})
	answer, err := b.PostForm(from.URL+"/login", url.Values{"id": {at.Query().Get("id")}, "user": {"anna"}})
	must.Succeed(t, err)
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil || answer.Request.URL.Path != "/" || !strings.Contains(string(page), "jwt:anna") ||
		!strings.Contains(string(page), ">reader<") {
		t.Errorf("got %s at %s, %v:\n%s\n%s", answer.Status, answer.Request.URL, err, page, r.log)
	}
}

func authorities(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	content, err := os.ReadFile(file)
	must.Succeed(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(content)
	return pool
}

// With http.bodies false, no caller sees a body or a header: neither an admin on the console, nor one of the API.
func TestHiddenBodiesAreHiddenFromAdmins(t *testing.T) {
	t.Parallel()
	for _, shown := range []bool{true, false} {
		r := start(t, settings(refusedOnce, func(c *config.Config) { c.HTTP.Bodies = shown }))
		r.awaitReady(t)
		r.dead(t)
		_, page := r.visit(t, http.DefaultClient, deadMessage, nil)
		if strings.Contains(page, "order 1") != shown || strings.Contains(page, "nordic") != shown ||
			strings.Contains(page, "http.bodies is false") == shown {
			t.Errorf("the console, want bodies %t:\n%s", shown, page)
		}
		admin := r.admin(t)
		got, err := admin.GetMessage(t.Context(), &adminv1.GetMessageRequest{Producer: "orders", Id: "1"})
		if m := got.GetRecord().GetMessage(); err != nil || (len(m.GetBody())+len(m.GetHeaders()) > 0) != shown {
			t.Errorf("GetMessage, want bodies %t: %v, %v", shown, m, err)
		}
		list, err := admin.ListMessages(t.Context(), &adminv1.ListMessagesRequest{
			Filter: &adminv1.MessageFilter{State: msghandlerv1.State_STATE_DEAD},
		})
		if m := list.GetRecords()[0].GetMessage(); err != nil || (len(m.GetBody())+len(m.GetHeaders()) > 0) != shown {
			t.Errorf("ListMessages, want bodies %t: %v, %v", shown, m, err)
		}
	}
}

// A user whom the proxy names has the role of the configuration alone, also where the API is open.
func TestUserOfProxyHasItsRole(t *testing.T) {
	t.Parallel()
	r := start(t, settings(func(c *config.Config) {
		c.HTTP.UserHeader, c.HTTP.TrustedProxies = "X-Forwarded-User", []string{"127.0.0.1/8"}
		c.Access.Viewers = []string{"proxy:*"}
	}))
	status, page := r.visit(t, http.DefaultClient, "/", nil, "X-Forwarded-User", "anna")
	if status != http.StatusOK || !strings.Contains(page, "proxy:anna") || !strings.Contains(page, ">viewer<") {
		t.Errorf("got %d:\n%s", status, page)
	}
	status, page = r.visit(t, http.DefaultClient, "/", nil)
	if status != http.StatusOK || !strings.Contains(page, "Open it through the proxy in front of it") {
		t.Errorf("without the proxy: got %d:\n%s", status, page)
	}
}

func TestShortSecretOfSessionsIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	for content, want := range map[string]string{"short\n": "fewer than 32 characters", "": "no such file"} {
		if content != "" {
			must.Succeed(t, os.WriteFile(file, []byte(content), 0o600))
		} else if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		_, err := app.New(t.Context(), settings(func(c *config.Config) { c.HTTP.SessionKeyFile = file }), app.Deps{})
		if err == nil || !strings.Contains(err.Error(), "http.session_key_file") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", content, err)
		}
	}
}
