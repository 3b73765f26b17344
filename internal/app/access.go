package app

import (
	"fmt"
	"slices"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/internal/config"
)

// newAuthenticator builds what makes the identities of callers, for the API and the console.
func (a *App) newAuthenticator() (*access.Authenticator, error) {
	if file := a.settings.Access.TokenFile; file != "" {
		var err error
		if a.tokens, err = tokenfile.Open(file, a.logger); err != nil {
			return nil, SettingsError{fmt.Errorf("access.token_file: %w", err)}
		}
	}
	made, err := access.NewAuthenticator(rulesOf(&a.settings), a.sources()...)
	if err != nil {
		return nil, SettingsError{fmt.Errorf("access, grpc.admins and grpc.callers: %w", err)}
	}
	return made, nil
}

// sources prove the identities of callers with bearer tokens.
func (a *App) sources() (all []access.Source) {
	if a.tokens != nil {
		all = append(all, a.tokens)
	}
	return all
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
