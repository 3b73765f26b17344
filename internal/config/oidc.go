package config

import (
	"errors"
	"strings"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/escape"
)

// OIDC is the issuer of JSON Web Tokens. See oidc.Config.
type OIDC struct {
	Issuer, Audience                      string
	CA                                    string
	NameClaim, RolesClaim, ProducersClaim string
}

func (o *OIDC) keys() []Key {
	return []Key{
		{
			Name: issuerKey, value: text(&o.Issuer, checkIssuer),
			Meaning: "URL of the OpenID Connect issuer whose JSON Web Tokens are accepted, exactly as the tokens name " +
				"the issuer: https://, or http:// on the loopback for trials.",
		},
		{
			Name: audienceKey, value: text(&o.Audience, checkClaim),
			Meaning: "Audience that a JSON Web Token must name. Required with access.oidc_issuer. Another name than " +
				"http.oidc_client_id: ID tokens of the console's logins count for logins only.",
		},
		{
			Name: caKey, value: text(&o.CA, checkFile),
			Meaning: "Certificate authorities of the issuer, a PEM file. None: those of the system.",
		},
		{
			Name: "access.oidc_name_claim", Default: "sub", value: text(&o.NameClaim, checkClaim),
			Meaning: "Claim with the caller's name. Rules match it as jwt:NAME. With email, the issuer must have verified " +
				"the address (email_verified).",
		},
		{
			Name: "access.oidc_roles_claim", Default: "roles", value: text(&o.RolesClaim, checkClaim),
			Meaning: "Claim with the caller's roles, a text or a list: viewer, reader, operator or admin. Other values " +
				"count for nothing.",
		},
		{
			Name: "access.oidc_producers_claim", value: text(&o.ProducersClaim, checkClaim),
			Meaning: "Claim with the producers that the caller may call as, a text or a list of globs. None: no " +
				"claim gives producers.",
		},
	}
}

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
