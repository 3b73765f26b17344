package pages

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPagesAnswerOnlyKnownHostNames(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	New(Config{Hosts: []string{"", "console.example.com", "Shop_1"}}).Register(mux)
	for host, want := range map[string]int{
		"127.0.0.1:9091": http.StatusOK, "10.1.2.3": http.StatusOK, "[::1]:9091": http.StatusOK, "[fd00::7]": http.StatusOK,
		"localhost": http.StatusOK, "LocalHost:9091": http.StatusOK, "console.example.com": http.StatusOK,
		"CONSOLE.example.com:80": http.StatusOK, "shop_1:1": http.StatusOK,
		"evil.example": http.StatusMisdirectedRequest, "evil.example:9091": http.StatusMisdirectedRequest,
		"127.0.0.1.evil.example": http.StatusMisdirectedRequest, "localhost.evil.example": http.StatusMisdirectedRequest,
		"sub.console.example.com": http.StatusMisdirectedRequest, "": http.StatusMisdirectedRequest,
		":9091": http.StatusMisdirectedRequest,
	} {
		r, w := httptest.NewRequest(http.MethodGet, "/static/console.js", nil), httptest.NewRecorder()
		r.Host = host
		if mux.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%q: got %d, want %d", host, w.Code, want)
		}
	}
	for _, request := range []string{
		"GET /", "GET /messages", "GET /message", "GET /find", "GET /change", "POST /change",
		"POST /change/do",
	} {
		method, path, _ := strings.Cut(request, " ")
		r, w := httptest.NewRequest(method, path, nil), httptest.NewRecorder()
		r.Host = "evil.example:9091"
		mux.ServeHTTP(w, r)
		if said := w.Body.String(); w.Code != http.StatusMisdirectedRequest || !strings.Contains(said, `"evil.example"`) ||
			!strings.Contains(said, "add it to http.hosts") {
			t.Errorf("%s: got %d, %s", request, w.Code, said)
		}
	}
}
