package app_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/certs/certstest"
	"github.com/msghandler/msghandler/internal/config"
)

// A coordinator that other machines reach must know who calls, or be told that everyone may do everything.
func TestExposedCoordinatorNeedsIdentities(t *testing.T) {
	authority := certstest.NewAuthority(t)
	cert, key := authority.Issue("coordinator.shop")
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	secured := config.Certificates{Cert: cert, Key: key}
	for what, tc := range map[string]struct {
		edit    func(c *config.Config)
		refused string
		warns   bool
	}{
		"grpc.addr": {func(c *config.Config) { c.GRPC.Addr = ":0" }, "grpc.addr (:0)", false},
		"http.addr": {func(c *config.Config) { c.HTTP.Addr = ":0" }, "http.addr (:0)", false},
		"TLS without clients' certificates": {
			func(c *config.Config) { c.GRPC.Addr, c.GRPC.Certificates = ":0", secured }, "grpc.addr (:0)", false,
		},
		"the loopback": {func(*config.Config) {}, "", false},
		"tokens": {
			func(c *config.Config) { c.GRPC.Addr, c.GRPC.Certificates, c.Access.TokenFile = ":0", secured, tokens }, "", false,
		},
		"certificates": {
			func(c *config.Config) {
				c.GRPC.Addr, c.GRPC.Certificates = ":0", config.Certificates{Cert: cert, Key: key, CA: authority.File}
			}, "", false,
		},
		"anonymous":                 {func(c *config.Config) { c.GRPC.Addr, c.Access.Anonymous = ":0", true }, "", true},
		"anonymous on the loopback": {func(c *config.Config) { c.Access.Anonymous = true }, "", true},
	} {
		var log bytes.Buffer
		a, err := app.New(t.Context(), settings(tc.edit), app.Deps{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err == nil {
			if err := a.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if warned := strings.Contains(log.String(), "access.anonymous is set"); warned != tc.warns {
			t.Errorf("%s: the log warns %t, want %t:\n%s", what, warned, tc.warns, &log)
		}
		if tc.refused == "" {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		var wrong app.SettingsError
		if !errors.As(err, &wrong) {
			t.Errorf("%s: got %v", what, err)
			continue
		}
		for _, part := range []string{tc.refused, "access.token_file", "access.anonymous: true", "127.0.0.1"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", what, err, part)
			}
		}
	}
}

// Operators see that everyone may do everything.
func TestAnonymousAccessIsFound(t *testing.T) {
	r := start(t, settings(func(c *config.Config) { c.Access.Anonymous = true }))
	r.awaitReady(t)
	if what := r.found(t)["access-anonymous"]; what == "" {
		t.Error("nothing is found")
	}
	if page := r.get(t, "/"); !strings.Contains(page, "access.anonymous is set") {
		t.Errorf("the page is\n%s", page)
	}
}

// A token file that cannot be read must fail the start, or every token would be refused.
func TestMissingTokenFileFailsTheStart(t *testing.T) {
	_, err := app.New(t.Context(), settings(func(c *config.Config) { c.Access.TokenFile = "/nowhere" }), app.Deps{})
	var wrong app.SettingsError
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "access.token_file") {
		t.Errorf("got %v", err)
	}
}
