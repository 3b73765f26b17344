package app_test

import (
	"net/http"
	"testing"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/must"
)

// The console answers under the names of http.hosts only.
func TestConsoleAnswersByNamesOfConfiguration(t *testing.T) {
	r := start(t, settings(func(c *config.Config) { c.HTTP.Hosts = []string{"console.example.com", "shop_1"} }))
	for name, want := range map[string]int{
		"console.example.com": http.StatusOK, "shop_1:9091": http.StatusOK, "127.0.0.1": http.StatusOK,
		"other.example.com": http.StatusMisdirectedRequest,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.HTTPAddr()+"/", nil)
		must.Succeed(t, err)
		request.Host = name
		answer, err := http.DefaultClient.Do(request)
		must.Succeed(t, err)
		if answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("%s: got %s, want %d", name, answer.Status, want)
		}
	}
}
