package app

import (
	"fmt"
	"slices"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/config"
)

// newAuthenticator builds what makes the identities of callers, for the API and the console.
func (a *App) newAuthenticator() (*access.Authenticator, error) {
	made, err := access.NewAuthenticator(rulesOf(&a.settings))
	if err != nil {
		return nil, SettingsError{fmt.Errorf("access, grpc.admins and grpc.callers: %w", err)}
	}
	return made, nil
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
