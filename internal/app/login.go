package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/console/login"
)

// The notices of the console about what its visitors may do without a login.
const (
	noticeOpen         = "Everyone who reaches this address may do everything: access.anonymous is set."
	noticeCertificates = "Read-only, without headers and bodies: the configuration names who may do what, and no " +
		"login is set up here. Set access.token_file, or http.oidc_client_id with access.oidc_issuer, or http.user_header."
)

// newLogin says who uses the console, with a notice for its pages.
func (a *App) newLogin() (c login.Config, notice string, err error) {
	h := &a.settings.HTTP
	c = login.Config{PublicURL: h.PublicURL, Age: sessionAge, Logger: a.logger}
	// A session keeps what the issuer said, so it holds only where the same tokens and claims count.
	oidc := &a.settings.Access.OIDC
	c.Installation = []string{
		oidc.Issuer, oidc.Audience, oidc.NameClaim, oidc.RolesClaim, oidc.ProducersClaim, h.OIDCClientID, h.PublicURL,
	}
	c.InstallationID = a.installation
	if c.Secret, err = a.secretIn("http.session_key", h.SessionKeyFile, readSessionKey); err != nil {
		return c, "", err
	}
	c.Authenticator = a.callers.authenticator
	if a.callers.tokens != nil {
		c.Tokens = a.callers.tokens
	}
	if a.callers.jwts != nil {
		c.JWTs = a.callers.jwts
	}
	if c.Issuer, err = a.newLoginIssuer(); err != nil {
		return c, "", err
	}
	if h.UserHeader != "" {
		c.Proxy = newProxy(h.UserHeader, h.TrustedProxies)
	}
	c.Logouts = logouts{a}
	c.LoggedIn, c.LoggedOut = a.recordSession(audit.Login), a.recordSession(audit.Logout)
	c.Anonymous, notice = a.anonymous(c.Tokens != nil || c.JWTs != nil || c.Proxy != nil)
	return c, notice, nil
}

// installation is the ID of the data in Redis; empty until Redis is open.
func (a *App) installation() string {
	store := a.store.Load()
	if store == nil {
		return ""
	}
	return store.Installation()
}

// logouts are kept in Redis, once it is open.
type logouts struct{ app *App }

// NoteLogout implements login.Logouts.
func (l logouts) NoteLogout(ctx context.Context, who string, at time.Time) error {
	store := l.app.store.Load()
	if store == nil {
		return errNoRedisYet
	}
	return store.NoteLogout(ctx, who, at)
}

// LastLogout implements login.Logouts.
func (l logouts) LastLogout(ctx context.Context, who string) (time.Time, error) {
	store := l.app.store.Load()
	if store == nil {
		return time.Time{}, errNoRedisYet
	}
	return store.LastLogout(ctx, who)
}

var errNoRedisYet = errors.New("no Redis was reached yet")

// newLoginIssuer is the issuer by which people log in to the console; nil: there is none.
func (a *App) newLoginIssuer() (*login.Issuer, error) {
	h := &a.settings.HTTP
	if a.callers.jwts == nil || h.OIDCClientID == "" {
		return nil, nil //nolint:nilnil // no issuer is no error
	}
	at, err := url.Parse(a.settings.Access.OIDC.Issuer)
	if err != nil {
		return nil, SettingsError{fmt.Errorf("access.oidc_issuer: %w", err)}
	}
	made := &login.Issuer{Provider: a.callers.jwts, Name: at.Hostname(), ClientID: h.OIDCClientID, Scopes: h.OIDCScopes}
	made.ClientSecret, err = a.secretIn("http.oidc_client_secret", h.OIDCClientSecretFile, config.ReadSecret)
	return made, err
}

// secretIn returns the secret in a file, as follow does; nil without a file.
func (a *App) secretIn(key, file string, read func(file string) (string, error)) (func() string, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // no file is no error
	}
	trimmed := func() (string, error) {
		secret, err := read(file)
		return strings.TrimSpace(secret), err
	}
	atStart, err := trimmed()
	if err != nil {
		return nil, SettingsError{fmt.Errorf("%s_file: %s: %w", key, file, err)}
	}
	return a.follow(key, atStart, trimmed), nil
}

// anonymous is a visitor of the console who has shown nothing. Without a login the console must not be a way around the
// certificates that the API asks for.
func (a *App) anonymous(logsIn bool) (visitor access.Identity, notice string) {
	visitor, _ = a.callers.authenticator.Identify(a.life, access.Shown{}) // never fails without a credential
	switch {
	case visitor.Role == access.Admin && a.settings.ExposesConsole():
		notice = noticeOpen
	case visitor.Role == access.NoRole && !logsIn: // only this machine reaches it
		visitor.Role, notice = access.Viewer, noticeCertificates
	}
	return visitor, notice
}

func newProxy(header string, trusted []string) *login.Proxy {
	proxy := &login.Proxy{Header: header}
	for _, cidr := range trusted {
		if network, err := netip.ParsePrefix(cidr); err == nil { // checked by config.Load
			proxy.Trusted = append(proxy.Trusted, network.Masked())
		}
	}
	return proxy
}

// leastSecret is how many characters a secret of sessions must have.
const leastSecret = 32

func readSessionKey(file string) (string, error) {
	secret, err := config.ReadSecret(file)
	if err == nil && len(strings.TrimSpace(secret)) < leastSecret {
		err = errShortSecret
	}
	return secret, err
}

var errShortSecret = errors.New("holds fewer than 32 characters; write it with: openssl rand -hex 32")
