package app_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/servers"
)

// hidden is the value of a field of a form on a page.
func hidden(t *testing.T, page, field string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, `name="`+field+`" value="`)
	if !found {
		t.Fatalf("the page has no field %s:\n%s", field, page)
	}
	value, _, _ := strings.Cut(rest, `"`)
	return strings.NewReplacer("&amp;", "&", "&#43;", "+", "&#34;", `"`).Replace(value)
}

// The status tells a request that can never succeed from a request to retry while Redis is unavailable.
func TestConsoleStatusTellsWhoFailed(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	r := start(t, settings(func(c *config.Config) { c.Redis.URL = "redis://" + redis.Addr() }))
	r.awaitReady(t)
	p := startOrders(t)
	request := half(p, "1")
	client := r.producers(t)
	if _, err := client.SendHalfMessage(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	pages := map[string]url.Values{
		"/messages?state=dead":                             nil,
		"/messages?state=dead&error=x":                     nil,
		"/message?producer=orders&id=1":                    nil,
		"/change?action=discard&state=pending&all=1":       nil,
		"/change?action=retry&state=dead&all=1&producer=o": nil,
		"/change": {"action": {"retry"}, "state": {"pending"}, "name": {"orders/1"}},
	}
	for path, form := range pages {
		if status, page := r.visit(t, http.DefaultClient, path, form); status != http.StatusOK {
			t.Errorf("%s: got %d:\n%s", path, status, page)
		}
	}
	for path, want := range map[string]int{
		"/messages?state=nonsense":                           http.StatusBadRequest,
		"/messages?state=dead&after=nonsense":                http.StatusBadRequest,
		"/messages?state=dead&producer=not+one":              http.StatusBadRequest,
		"/message?producer=orders&id=":                       http.StatusBadRequest,
		"/message?producer=orders&id=none":                   http.StatusNotFound,
		"/change?action=discard&state=sendable&all=1":        http.StatusBadRequest,
		"/change?action=discard&state=sendable&all=1&age=1h": http.StatusBadRequest,
		"/change?action=explode&state=dead&all=1":            http.StatusBadRequest,
	} {
		if status, page := r.visit(t, http.DefaultClient, path, nil); status != want {
			t.Errorf("%s: got %d, want %d:\n%s", path, status, want, page)
		}
	}

	_, page := r.visit(t, http.DefaultClient, "/change?action=discard&state=pending&all=1&producer=orders", nil)
	form := url.Values{
		"selection": {hidden(t, page, "selection")},
		"token":     {hidden(t, page, "token")},
		"reason":    {"a test"},
		"lose":      {"yes"},
	}
	redis.SetError("LOADING Redis is loading the dataset in memory")
	for path, form := range pages {
		servers.Eventually(
			t,
			20*time.Second,
			path+" says that Redis is away",
			func() bool { // the counts are cached for a while
				status, page := r.visit(t, http.DefaultClient, path, form)
				if status != http.StatusOK && status != http.StatusServiceUnavailable {
					t.Fatalf("%s: got %d:\n%s", path, status, page)
				}
				return status == http.StatusServiceUnavailable
			},
		)
	}
	if status, page := r.visit(t, http.DefaultClient, "/change/do", form); status != http.StatusServiceUnavailable ||
		!strings.Contains(page, "the store is out of reach") {
		t.Errorf("a discard: got %d:\n%s", status, page)
	}
}
