package app

import (
	"errors"
	"fmt"
	"slices"
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
	if err := a.openSources(); err != nil {
		return nil, err
	}
	made, err := access.NewAuthenticator(rulesOf(&a.settings), a.sources()...)
	if err != nil {
		return nil, SettingsError{fmt.Errorf("access, grpc.admins and grpc.callers: %w", err)}
	}
	if a.settings.Access.Anonymous {
		a.logger.Warn("access.anonymous is set: "+anonymousConsequence+"; "+anonymousRemedy,
			"listeners", a.settings.Exposed())
	}
	return made, nil
}

// openSources opens the sources of identities, for the API and the console.
func (a *App) openSources() (err error) {
	if file := a.settings.Access.TokenFile; file != "" {
		if a.tokens, err = tokenfile.Open(file, a.logger); err != nil {
			return SettingsError{fmt.Errorf("access.token_file: %w", err)}
		}
	}
	if from := a.settings.Access.OIDC; from.Issuer != "" {
		a.issuer, err = oidc.New(a.life, oidc.Config{
			Issuer: from.Issuer, Audience: from.Audience, Algorithms: from.Algorithms, CA: from.CA,
			NameClaim: from.NameClaim, RolesClaim: from.RolesClaim, ProducersClaim: from.ProducersClaim,
		}, a.logger)
		if err != nil {
			return SettingsError{fmt.Errorf("access.oidc_issuer: %w", err)}
		}
	}
	return nil
}

// sources prove the identities of callers with bearer tokens.
func (a *App) sources() (all []access.Source) {
	if a.tokens != nil {
		all = append(all, a.tokens)
	}
	if a.issuer != nil {
		all = append(all, a.issuer)
	}
	return all
}

const (
	anonymousConsequence = "callers that show no certificate and no token may do everything"
	anonymousRemedy      = "give callers certificates or tokens, and remove access.anonymous"
)

// checkExposure refuses a coordinator that other machines reach, and that cannot tell who calls.
func (a *App) checkExposure() error {
	exposed := a.settings.Exposed()
	if len(exposed) == 0 || a.settings.Identifies() || a.settings.Access.Anonymous {
		return nil
	}
	return errors.New(strings.Join(exposed, " and ") + ": other machines reach this coordinator, and nothing tells who " +
		"calls, so anyone could send, retry and discard messages: set access.token_file (msghandler token new), " +
		"access.oidc_issuer or grpc.tls_client_ca; or listen on 127.0.0.1; or set access.anonymous: true to allow it")
}

// rulesOf are the rules of the configuration.
func rulesOf(c *config.Config) access.Rules {
	rules := access.Rules{
		Viewers: c.Access.Viewers, Readers: c.Access.Readers, Operators: c.Access.Operators,
		Admins: slices.Concat(c.Access.Admins, c.GRPC.Admins), Callers: c.GRPC.Callers,
		CallersOf: map[string][]string{}, Anonymous: c.Access.Anonymous, Strict: c.Access.Strict(),
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
