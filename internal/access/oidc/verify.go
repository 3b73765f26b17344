package oidc

import (
	"context"
	"errors"
	"fmt"

	oidclib "github.com/coreos/go-oidc/v3/oidc"
	jose "github.com/go-jose/go-jose/v4"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/escape"
)

var (
	errNoKeys     = fmt.Errorf("%w: the keys of the OIDC issuer are not known yet; try again", access.ErrUnavailable)
	errKeyUnknown = errors.New("the JWT is signed with a key that the issuer does not publish")
	errKeyMissed  = fmt.Errorf("%w: the JWT is signed with an unknown key, and the keys of the OIDC issuer "+
		"cannot be fetched; try again", access.ErrUnavailable)
)

// algorithms may sign a JWT: all have a public key, which cannot sign.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

func algorithmNames() (names []string) {
	for _, a := range algorithms {
		names = append(names, string(a))
	}
	return names
}

// verify checks signature, issuer, audience and use of a JWT. It returns the keys that have verified the JWT.
func (s *Source) verify(ctx context.Context, token string, shown use) (*oidclib.IDToken, *keys, error) {
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, nil, refusal(err)
	}
	header := jws.Signatures[0].Header
	if err := checkType(header); err != nil {
		return nil, nil, err
	}
	by, err := s.issuer.keysFor(ctx, header)
	if err != nil {
		return nil, nil, err
	}
	signers := &oidclib.StaticKeySet{PublicKeys: by.matching(header)}
	verifier := oidclib.NewVerifier(s.config.Issuer, signers, &oidclib.Config{
		ClientID: s.config.audienceOf(shown), SupportedSigningAlgs: algorithmNames(),
		SkipExpiryCheck: true, // checkTimes does it
	})
	verified, err := verifier.Verify(ctx, token)
	if err != nil {
		return nil, nil, refusal(err)
	}
	return verified, by, s.config.checkUse(shown, header, verified)
}

// refusal is an error of a library for people. The text may hold parts of the JWT that a stranger has chosen.
func refusal(err error) error {
	return fmt.Errorf("the JWT is refused: %s", shortened(err))
}

func shortened(err error) string {
	const most = 300
	text := err.Error()
	if len(text) > most {
		text = text[:most] + "…"
	}
	return escape.Line(text)
}
