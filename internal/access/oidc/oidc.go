// Package oidc authenticates callers by JSON Web Tokens of an OpenID Connect issuer.
package oidc

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	oidclib "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/proto/certs"
)

// Config names an issuer, and says what its JWTs mean.
type Config struct {
	// Issuer is the issuer's URL, exactly as JWTs name it in iss. See access.CheckIssuer.
	Issuer string
	// Audience must be in aud of a JWT that is shown in a call.
	Audience string
	// LoginClient is the client by which people log in. Its ID tokens count at a login only. Empty: there is no login.
	LoginClient string
	// CA is a PEM file with the authorities of the issuer's certificate. Empty: those of the system.
	CA string
	// Handshake gets the state of TLS of each connection to the issuer, and must not block. May be nil.
	Handshake func(server string, state tls.ConnectionState, err error)
	// NameClaim is the claim with the caller's name.
	NameClaim string
	// RolesClaim is the claim with roles, ProducersClaim with globs on names of producers. Empty: no claim gives them.
	RolesClaim, ProducersClaim string
}

// Source verifies JWTs of an issuer. A Source is safe for concurrent use.
type Source struct {
	config  Config
	issuer  *issuer
	stop    context.CancelFunc
	running sync.WaitGroup
}

var _ access.Source = (*Source)(nil)

// New begins to fetch the issuer's keys, until Close or the end of the context. New fails on an invalid configuration
// only. While the issuer is away at first, the errors are access.ErrUnavailable. Keys that were fetched stay valid
// while the issuer is away later.
func New(ctx context.Context, config Config, logger *slog.Logger) (*Source, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	authorities, err := certs.Open(certs.Files{CA: config.CA}, logger)
	if err != nil {
		return nil, err
	}
	return start(ctx, config, newIssuer(config.Issuer, httpClient{authorities, config.Handshake}.make, logger)), nil
}

func start(ctx context.Context, config Config, from *issuer) *Source {
	s := &Source{config: config, issuer: from}
	ctx, s.stop = context.WithCancel(ctx)
	s.running.Go(func() { s.issuer.run(ctx) })
	return s
}

// Close ends the fetches, and waits for their end.
func (s *Source) Close() {
	s.stop()
	s.running.Wait()
}

func (c Config) check() error {
	if err := access.CheckIssuer(c.Issuer); err != nil {
		return fmt.Errorf("the issuer %w", err)
	}
	if c.Audience == "" || c.NameClaim == "" {
		return errors.New("an issuer needs an audience, and a claim of names")
	}
	return nil
}

// Authenticate implements access.Source. A text that is not of the form of a JWT belongs to another source.
func (s *Source) Authenticate(ctx context.Context, token string) (access.Identity, error) {
	if !isJWT(token) {
		return access.Identity{}, access.ErrNotMine
	}
	if len(token) > maxJWT {
		return access.Identity{}, errLong
	}
	sum := sha256.Sum256([]byte(token))
	if k := s.issuer.keys.Load(); k != nil {
		if identity, known := k.verified.get(sum, time.Now()); known {
			return identity, nil
		}
	}
	verified, by, err := s.verify(ctx, token, call)
	if err != nil {
		return access.Identity{}, err
	}
	identity, err := s.config.identity(verified)
	if err == nil {
		by.verified.put(sum, identity)
	}
	return identity, err
}

// maxJWT is the longest JWT that is parsed, in bytes.
const maxJWT = 8 << 10

var errLong = fmt.Errorf("the JWT is longer than %d bytes", maxJWT)

// isJWT says whether a text may be a signed JWT: three parts, of which the first is a JSON object in base64url.
func isJWT(token string) bool {
	return strings.HasPrefix(token, "ey") && strings.Count(token, ".") == 2
}

// AuthenticateLogin returns the identity of a person who has logged in: of an ID token for Config.LoginClient, from the
// login that began with this nonce.
func (s *Source) AuthenticateLogin(ctx context.Context, idToken, nonce string) (access.Identity, error) {
	switch {
	case s.config.LoginClient == "" || nonce == "":
		return access.Identity{}, errors.New("a login needs a client and a nonce")
	case !isJWT(idToken):
		return access.Identity{}, errors.New("the ID token is no JWT")
	case len(idToken) > maxJWT:
		return access.Identity{}, errLong
	}
	verified, _, err := s.verify(ctx, idToken, login)
	if err != nil {
		return access.Identity{}, err
	}
	if subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(nonce)) != 1 {
		return access.Identity{}, errors.New("the ID token is of another login: its nonce differs")
	}
	if err := checkParty(verified, s.config.LoginClient); err != nil {
		return access.Identity{}, err
	}
	return s.config.identity(verified)
}

// checkParty refuses an ID token that names another client as the party to which the ID token was issued.
func checkParty(t *oidclib.IDToken, clientID string) error {
	var claims struct {
		Party string `json:"azp"`
	}
	if err := t.Claims(&claims); err != nil || claims.Party != "" && claims.Party != clientID {
		return errors.New("the ID token was issued to another client")
	}
	return nil
}

// Endpoint returns the issuer's addresses for logins, access.ErrUnavailable until the issuer has answered.
func (s *Source) Endpoint() (oauth2.Endpoint, error) {
	k := s.issuer.keys.Load()
	if k == nil {
		return oauth2.Endpoint{}, errNoKeys
	}
	return k.provider.Endpoint(), nil
}

// ClientContext returns a context for calls of package oauth2. The requests trust the issuer's authorities, and are
// bounded in time and size.
func (s *Source) ClientContext(ctx context.Context) context.Context {
	return oidclib.ClientContext(ctx, s.issuer.client())
}
