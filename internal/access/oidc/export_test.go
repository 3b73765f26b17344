package oidc

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/msghandler/msghandler/internal/access"
)

// The limits that tests know.
const (
	MaxJWT          = maxJWT
	FetchEvery      = fetchEvery
	FetchAgainAfter = fetchAgainAfter
	Skew            = skew
	FetchWait       = fetchWait
	MaxWaiting      = maxWaiting
)

// NewWithTransport is New with another way to the issuer: in the bubble of a test there is no network.
func NewWithTransport(ctx context.Context, config Config, transport http.RoundTripper, logger *slog.Logger) *Source {
	return start(ctx, config, newIssuer(config.Issuer, func() *http.Client { return bounded(transport) }, logger))
}

// AuthenticateUncached is Authenticate of a JWT that was not shown before.
func (s *Source) AuthenticateUncached(ctx context.Context, token string) (access.Identity, error) {
	verified, _, err := s.verify(ctx, token, call)
	if err != nil {
		return access.Identity{}, err
	}
	return s.config.identity(verified)
}
