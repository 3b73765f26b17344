package login

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/access"
)

// byToken begins a session for the owner of a token. Guesses from the same address never hold up a valid token.
func (g *Gate) byToken(w http.ResponseWriter, r *http.Request) {
	next := localAddress(r.PostFormValue("next"))
	p, err := g.prove(r.Context(), strings.TrimSpace(r.PostFormValue("token")))
	switch {
	case err == nil:
		g.begin(w, r, p, next)
	case errors.Is(err, access.ErrUnavailable):
		g.show(w, r, View{Status: http.StatusServiceUnavailable, Next: next, Problem: unavailable})
	case !g.guesses.begin(addressOf(r), time.Now()):
		g.config.Refused(r, "too many attempts to log in")
		g.show(w, r, View{Status: http.StatusTooManyRequests, Next: next, Problem: tooManyAttempts})
	default:
		g.config.Refused(r, err.Error())
		g.show(w, r, View{
			Status: http.StatusUnauthorized, Next: next,
			Problem: "This token is not valid here. The log of the coordinator says why.",
		})
	}
}

var errNoTokens = errors.New("tokens are not accepted")

// prove makes a session of a token.
func (g *Gate) prove(ctx context.Context, token string) (proof, error) {
	err := errNoTokens
	var identity access.Identity
	until := time.Now().Add(g.config.Age)
	if g.config.Tokens != nil {
		if _, err = g.config.Tokens.Authenticate(ctx, token); err == nil {
			sum := sha256.Sum256([]byte(token))
			return proof{Sum: sum[:], Until: until}, nil
		}
	}
	if g.config.JWTs == nil || g.config.Tokens != nil && !errors.Is(err, access.ErrNotMine) {
		return proof{}, err
	}
	if identity, err = g.config.JWTs.Authenticate(ctx, token); err != nil {
		return proof{}, err
	}
	if !identity.Expires.IsZero() && identity.Expires.Before(until) {
		until = identity.Expires
	}
	return proof{Identity: &identity, Until: until}, nil
}
