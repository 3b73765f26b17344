package app_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/proto/certs"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/issuer"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// A coordinator that other machines reach must know who calls, or be told that everyone may do everything.
func TestExposedCoordinatorNeedsIdentities(t *testing.T) {
	authority := certstest.NewAuthority(t)
	cert, key := authority.Issue("coordinator.shop")
	tokens := filepath.Join(t.TempDir(), "tokens")
	must.Succeed(t, os.WriteFile(tokens, nil, 0o600))
	secured := config.Certificates{Cert: cert, Key: key}
	for what, tc := range map[string]struct {
		edit    func(c *config.Config)
		refused string
		warns   bool
	}{
		"grpc.addr": {func(c *config.Config) { c.GRPC.Addr = ":0" }, "grpc.addr (:0)", false},
		"http.addr": {func(c *config.Config) { c.HTTP.Addr = ":0" }, "http.addr (:0)", false},
		"the console of tokens that the API knows by certificates": {
			func(c *config.Config) {
				c.HTTP.Addr, c.GRPC.Certificates = ":0", config.Certificates{Cert: cert, Key: key, CA: authority.File}
			}, "http.addr (:0)", false,
		},
		"a proxy of the console": {func(c *config.Config) { c.HTTP.Addr, c.HTTP.UserHeader = ":0", "X-User" }, "", false},
		"a proxy of the console, and the API": {
			func(c *config.Config) { c.HTTP.UserHeader, c.GRPC.Addr = "X-User", ":0" }, "grpc.addr (:0)", false,
		},
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

// What no key grants is denied. A start whose keys so stop all producers says so.
func TestRolesStoppingProducersAreWarnedOf(t *testing.T) {
	authority := certstest.NewAuthority(t)
	cert, key := authority.Issue("coordinator.shop")
	for what, tc := range map[string]struct {
		edit  func(c *config.Config)
		warns bool
	}{
		"no rule":   {func(*config.Config) {}, true},
		"a role":    {func(c *config.Config) { c.Access.Viewers = []string{"dns:*.ops.shop"} }, true},
		"strangers": {func(c *config.Config) { c.Access.Anonymous = true }, false},
		"a role and callers": {func(c *config.Config) {
			c.Access.Viewers, c.GRPC.Callers = []string{"dns:*.ops.shop"}, []string{"dns:{producer}.shop"}
		}, false},
		"a role and callers of a producer": {func(c *config.Config) {
			c.Access.Viewers = []string{"dns:*.ops.shop"}
			c.Producers = map[string]config.Producer{"orders": {Callers: []string{"dns:orders.shop"}}}
		}, false},
	} {
		var log bytes.Buffer
		c := settings(tc.edit)
		c.GRPC.Certificates = config.Certificates{Cert: cert, Key: key, CA: authority.File}
		a, err := app.New(t.Context(), c, app.Deps{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		must.Succeed(t, err)
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if warned := strings.Contains(log.String(), "every call of a producer is refused"); warned != tc.warns {
			t.Errorf("%s: the log warns %t, want %t:\n%s", what, warned, tc.warns, &log)
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

// A coordinator starts while its issuer is away, and takes JWTs once the issuer answers.
func TestCoordinatorTakesJWTs(t *testing.T) {
	of := issuer.StartTLS(t)
	r := start(t, settings(func(c *config.Config) {
		c.Access.OIDC = config.OIDC{
			Issuer: of.URL, Audience: "shop", CA: of.CA, NameClaim: "sub",
			RolesClaim: "roles",
		}
	}))
	r.awaitReady(t)
	admin := r.admin(t)
	ask := func(token string) error {
		_, err := admin.GetStats(certs.WithToken(t.Context(), token), &adminv1.GetStatsRequest{})
		return err
	}
	viewer := of.JWT("anna", "shop", map[string]any{"roles": "viewer"})
	servers.Eventually(t, 20*time.Second, "a JWT is accepted", func() bool { return ask(viewer) == nil })
	elsewhere := of.JWT("anna", "elsewhere", map[string]any{"roles": "viewer"})
	if err := ask(elsewhere); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a JWT for another audience: %v", err)
	}
	if err := ask(of.JWT("anna", "shop", nil)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a JWT without a role: %v", err)
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
