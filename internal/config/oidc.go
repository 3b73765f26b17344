package config

import (
	"errors"
	"strings"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/escape"
)

const (
	issuerKey   = "access.oidc_issuer"
	audienceKey = "access.oidc_audience"
	caKey       = "access.oidc_ca"
)

// checkIssuer accepts an issuer's URL, or the empty text for none.
func checkIssuer(s string) error {
	if s == "" {
		return nil
	}
	return access.CheckIssuer(s)
}

// checkClaim accepts the name of a claim or an audience, or the empty text for none.
func checkClaim(s string) error {
	if len(s) > 256 || escape.Deceptive(s) || strings.TrimSpace(s) != s {
		return errors.New("is longer than 256 bytes, or holds an invisible character or outer space")
	}
	return nil
}

// checkOIDC refuses keys of an issuer that are useless without other keys.
func (l *loading) checkOIDC() {
	o := &l.config.Access.OIDC
	switch {
	case o.Issuer != "" && o.Audience == "":
		l.relation(issuerKey, "needs an audience, or a token for any program would be accepted: set %s", audienceKey)
	case o.Audience != "" && o.Audience == l.config.HTTP.OIDCClientID:
		l.relation(audienceKey, "is the console's client too, so that an ID token of a login could count in calls: "+
			"register the API at the issuer under another name than http.oidc_client_id")
	case o.Issuer == "" && o.Audience != "":
		l.relation(audienceKey, "is of JSON Web Tokens, and no issuer is set: set %s", issuerKey)
	case o.Issuer == "" && o.CA != "":
		l.relation(caKey, "is of an issuer that is not set: set %s", issuerKey)
	}
	if o.Issuer != "" && o.NameClaim == "" {
		l.relation("access.oidc_name_claim", "is empty, so that callers have no name: name a claim such as sub")
	}
}
