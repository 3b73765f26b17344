package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/access/oidc"
	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/internal/config"
)

// newAuthenticator builds what makes the identities of callers of the API.
func (a *App) newAuthenticator() (*access.Authenticator, error) {
	if err := a.checkExposure(); err != nil {
		return nil, SettingsError{err}
	}
	sources, err := a.openSources()
	if err != nil {
		return nil, err
	}
	made, err := access.NewAuthenticator(rulesOf(&a.settings), sources...)
	if err != nil {
		return nil, SettingsError{fmt.Errorf("access and grpc.callers: %w", err)}
	}
	if a.settings.Access.Anonymous {
		a.logger.Warn("access.anonymous is set: "+anonymousConsequence+"; "+anonymousRemedy,
			"listeners", []string{a.settings.GRPC.Addr, a.settings.HTTP.Addr})
	}
	a.warnOfNoProducers()
	return made, nil
}

// warnOfNoProducers warns of a configuration that stops all producers: it says who callers are, and gives none of them
// a producer.
func (a *App) warnOfNoProducers() {
	if !a.settings.NamesCallers() {
		a.logger.Warn("no key says who may call as a producer; every call of a producer is refused; set grpc.callers or " +
			"producers.NAME.callers")
	}
}

// openSources opens the sources of tokens.
func (a *App) openSources() (sources []access.Source, err error) {
	settings := a.settings.Access
	if settings.TokenFile != "" {
		if a.callers.tokens, err = tokenfile.Open(settings.TokenFile, a.logger); err != nil {
			return nil, SettingsError{fmt.Errorf("access.token_file: %w", err)}
		}
		sources = append(sources, a.callers.tokens)
	}
	if settings.OIDC.Issuer != "" {
		if a.callers.jwts, err = oidc.New(a.life, a.oidcConfig(), a.logger); err != nil {
			return nil, SettingsError{fmt.Errorf("access.oidc_issuer, access.oidc_ca: %w", err)}
		}
		a.closeWith(closer{name: "issuer", close: func(context.Context) error {
			a.callers.jwts.Close()
			return nil
		}})
		sources = append(sources, a.callers.jwts)
	}
	return sources, nil
}

func (a *App) oidcConfig() oidc.Config {
	o := &a.settings.Access.OIDC
	return oidc.Config{
		Issuer: o.Issuer, Audience: o.Audience, LoginClient: a.settings.HTTP.OIDCClientID,
		CA: o.CA, Handshake: a.doors.certificates.Servers("access.oidc_issuer", nil).Handshake,
		NameClaim: o.NameClaim, RolesClaim: o.RolesClaim, ProducersClaim: o.ProducersClaim,
	}
}

const (
	anonymousConsequence = "callers that show no certificate and no token may do everything"
	anonymousRemedy      = "give callers certificates or tokens, and remove access.anonymous"
)

// checkExposure refuses a coordinator that other machines reach, and that cannot tell who calls.
func (a *App) checkExposure() error {
	exposed := a.settings.Exposed()
	if len(exposed) == 0 || a.settings.Access.Anonymous {
		return nil
	}
	return errors.New(strings.Join(exposed, " and ") + ": other machines reach this coordinator, and nothing tells who " +
		"calls there: set access.token_file (msghandler token new) or access.oidc_issuer, for grpc.addr also " +
		"grpc.tls_client_ca, for http.addr also http.user_header; or listen on 127.0.0.1; or set access.anonymous: true, " +
		"which allows anyone to send, retry and discard messages")
}

// rulesOf are the rules of the configuration.
func rulesOf(c *config.Config) access.Rules {
	rules := access.Rules{
		Viewers: c.Access.Viewers, Readers: c.Access.Readers, Operators: c.Access.Operators,
		Admins: c.Access.Admins, Callers: c.GRPC.Callers,
		CallersOf: map[string][]string{}, Anonymous: c.Open(),
	}
	for name, p := range c.Producers {
		rules.CallersOf[name] = p.Callers
	}
	return rules
}

// access reports that callers without an identity may do everything.
func (f *findings) access(c *config.Config) {
	if c.Access.Anonymous {
		f.add(warning, "access-anonymous", "access.anonymous is set", anonymousConsequence, anonymousRemedy)
	}
}
