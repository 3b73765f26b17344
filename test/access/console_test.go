package access

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/proto/certs/certstest"
)

// consoleNeeds are the roles that the pages need, written here once more: the test must not ask the implementation.
var consoleNeeds = map[string]int{
	"GET /": viewer, "GET /messages?state=dead": viewer, "GET /message?producer=orders&id=1": viewer,
	"GET /find?name=orders/1": viewer, "GET /metrics": viewer,
	"GET /change?action=retry&all=1&state=dead": operator, "POST /change?action=retry&all=1&state=dead": operator,
	"GET /change?action=discard&all=1&state=dead": admin, "POST /change?action=discard&all=1&state=dead": admin,
	"GET /healthz": none, "GET /readyz": none, "GET /login": none, "GET /static/console.css": none,
}

// Every caller without a certificate, which the console does not ask for, tries every page over HTTPS.
func TestConsoleAllowsWhatTheRoleAllows(t *testing.T) {
	t.Parallel()
	authority := certstest.NewAuthority(t)
	cert, key := authority.Issue("127.0.0.1")
	c := start(t, "MSGHANDLER_HTTP_TLS_CERT="+cert, "MSGHANDLER_HTTP_TLS_KEY="+key)
	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: authority.Client()},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	for _, of := range c.callers() {
		if of.cert != nil {
			continue
		}
		c.awaitToken(of)
		for request, need := range consoleNeeds {
			status, page := c.visit(client, of, request)
			if got, want := visited(status), of.wantsOfConsole(need); got != want {
				t.Errorf("%s, %s: got %d, %s, want %s:\n%.500s", of.name, request, status, got, want, page)
			}
		}
	}
}

// wantsOfConsole is the fate of a request for a page that needs a role.
func (c caller) wantsOfConsole(need int) string {
	switch {
	case need == none || c.proved && c.role >= need:
		return "allowed"
	case c.proved:
		return "forbidden"
	}
	return "stranger"
}

// visited is the fate of a request with this status. A page may be missing, or have no message to change.
func visited(status int) string {
	switch status {
	case http.StatusForbidden:
		return "forbidden"
	case http.StatusUnauthorized, http.StatusTooManyRequests: // after some guesses
		return "stranger"
	}
	return "allowed"
}

// visit sends a request of a caller to the console.
func (c *coordinator) visit(client *http.Client, of caller, request string) (status int, page string) {
	c.t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(c.t.Context(), method, "https://"+c.http+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if of.token != "" {
		r.Header.Set("Authorization", "Bearer "+of.token)
	}
	answer, err := client.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}
