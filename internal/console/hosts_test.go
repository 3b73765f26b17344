package console_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/console"
	"github.com/msghandler/msghandler/internal/console/login"
	"github.com/msghandler/msghandler/test/must"
)

// send sends a request under a name of a host.
func (r *rig) send(t *testing.T, method, path, host string, headers ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, r.url+path, nil)
	must.Succeed(t, err)
	request.Host = host
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	must.Succeed(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must.Succeed(t, err)
	return answer, string(body)
}

// everyPath is each kind of request that the console answers, except for the health.
var everyPath = []string{
	"GET /", "GET /messages", "GET /message", "GET /find", "GET /change", "POST /change", "POST /change/do",
	"GET /metrics",
	"GET /static/console.js", "GET /login", "POST /login", "POST /logout", "GET /login/oidc", "GET /nowhere",
}

func TestConsoleAnswersUnderKnownNamesOnly(t *testing.T) {
	r := start(t)
	for host, want := range map[string]int{
		"127.0.0.1:9091": http.StatusOK, "10.1.2.3": http.StatusOK, "[::1]:9091": http.StatusOK, "[fd00::7]": http.StatusOK,
		"localhost": http.StatusOK, "LocalHost:9091": http.StatusOK, "console.example.com": http.StatusOK,
		"CONSOLE.example.com:80": http.StatusOK, "shop_1:1": http.StatusOK,
		"evil.example": http.StatusMisdirectedRequest, "evil.example:9091": http.StatusMisdirectedRequest,
		"127.0.0.1.evil.example": http.StatusMisdirectedRequest, "localhost.evil.example": http.StatusMisdirectedRequest,
		"sub.console.example.com": http.StatusMisdirectedRequest, ":9091": http.StatusMisdirectedRequest,
	} {
		if answer, said := r.send(t, http.MethodGet, "/static/console.js", host); answer.StatusCode != want {
			t.Errorf("%q: got %s, %s, want %d", host, answer.Status, said, want)
		}
	}
	for _, request := range everyPath {
		method, path, _ := strings.Cut(request, " ")
		answer, said := r.send(t, method, path, "evil.example:9091")
		if answer.StatusCode != http.StatusMisdirectedRequest || !strings.Contains(said, `"evil.example"`) ||
			!strings.Contains(said, "add it to http.hosts") {
			t.Errorf("%s: got %s, %s", request, answer.Status, said)
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if answer, said := r.send(t, http.MethodGet, path, "msghandler.shop.svc:9091"); answer.StatusCode != http.StatusOK {
			t.Errorf("%s: got %s, %s", path, answer.Status, said)
		}
	}
}

// Another site can make a browser send forms, with all cookies of this site.
func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	r := start(t)
	for _, path := range []string{"/change", "/change/do", "/login", "/logout"} {
		for _, headers := range [][]string{
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "same-site"},
			{"Origin", "http://evil.example"},
			{"Origin", "null"},
		} {
			answer, said := r.send(t, http.MethodPost, path, "localhost:9091", headers...)
			if answer.StatusCode != http.StatusForbidden || !strings.Contains(said, "cross-origin") {
				t.Errorf("%s with %s: got %s, %s", path, headers, answer.Status, said)
			}
		}
		answer, said := r.send(t, http.MethodPost, path, "localhost:9091", "Origin", "http://localhost:9091")
		if strings.Contains(said, "cross-origin") {
			t.Errorf("%s of our own: got %s, %s", path, answer.Status, said)
		}
	}
}

func TestEveryAnswerIsGuarded(t *testing.T) {
	r := start(t)
	for _, request := range append(everyPath, "GET /healthz", "GET /readyz") {
		for _, host := range []string{"localhost", "evil.example"} {
			method, path, _ := strings.Cut(request, " ")
			answer, _ := r.send(t, method, path, host)
			policy := answer.Header.Get("Content-Security-Policy")
			if !strings.HasPrefix(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") ||
				strings.Contains(policy, "unsafe") || answer.Header.Get("X-Content-Type-Options") != "nosniff" ||
				answer.Header.Get("Referrer-Policy") != "same-origin" {
				t.Errorf("%s at %s: %v", request, host, answer.Header)
			}
		}
	}
}

// Without a role, only the health, the login and its style are there.
func TestStrangersGetTheLoginAlone(t *testing.T) {
	r := start(t, func(c *console.Config) { c.Login = login.Config{} })
	for _, request := range everyPath {
		method, path, _ := strings.Cut(request, " ")
		answer, said := r.send(t, method, path, "localhost")
		switch open := path == "/static/console.js" || path == "/login" || path == "/logout"; {
		case open && answer.StatusCode >= 400 && request != "POST /login":
			t.Errorf("%s: got %s, %s", request, answer.Status, said)
		case !open && (answer.StatusCode != http.StatusUnauthorized || answer.Header.Get("WWW-Authenticate") != "Bearer"):
			t.Errorf("%s: got %s, %s", request, answer.Status, said)
		}
		if strings.Contains(said, "msghandler_") {
			t.Errorf("%s tells a stranger of metrics", request)
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if answer, said := r.send(t, http.MethodGet, path, "localhost"); answer.StatusCode != http.StatusOK {
			t.Errorf("%s: got %s, %s", path, answer.Status, said)
		}
	}
}

// A caller with a valid identity and no role, such as a producer with its token, sees nothing either.
func TestCallersWithoutARoleAreRefused(t *testing.T) {
	r := start(t, func(c *console.Config) {
		c.Login = login.Config{Anonymous: access.Identity{Kind: access.Token, Name: "token:orders"}}
	})
	for _, request := range []string{
		"GET /", "GET /messages", "GET /message", "GET /find", "GET /change", "POST /change",
		"POST /change/do", "GET /metrics",
	} {
		method, path, _ := strings.Cut(request, " ")
		answer, said := r.send(t, method, path, "localhost")
		if answer.StatusCode != http.StatusForbidden || !strings.Contains(said, "needs the role viewer") ||
			strings.Contains(said, "msghandler_") {
			t.Errorf("%s: got %s, %s", request, answer.Status, said)
		}
	}
}
