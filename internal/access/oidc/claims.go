package oidc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	oidclib "github.com/coreos/go-oidc/v3/oidc"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/escape"
)

// skew is how far the clocks of the issuer and of the coordinator may differ.
const skew = 30 * time.Second

// claims are the claims of a verified JWT.
type claims map[string]json.RawMessage

// identity is the owner of a verified JWT.
func (c Config) identity(t *oidclib.IDToken) (access.Identity, error) {
	var all claims
	if err := t.Claims(&all); err != nil {
		return access.Identity{}, refusal(err)
	}
	if err := checkTimes(t, all, time.Now()); err != nil {
		return access.Identity{}, err
	}
	name, err := all.name(c.NameClaim)
	if err != nil {
		return access.Identity{}, err
	}
	name = "jwt:" + name
	return access.Identity{
		Kind: access.JWT, Name: name, Names: []string{name},
		Role: all.role(c.RolesClaim), Producers: all.producers(c.ProducersClaim), Expires: t.Expiry.Add(skew),
	}, nil
}

// checkTimes refuses a JWT without an end, after its end, or before its beginning.
func checkTimes(t *oidclib.IDToken, all claims, now time.Time) error {
	switch {
	case t.Expiry.IsZero() || t.Expiry.Year() > 9999:
		return errors.New("the JWT has no time of expiry (exp)")
	case !now.Before(t.Expiry.Add(skew)):
		return fmt.Errorf("the JWT expired at %s", t.Expiry.UTC().Format(time.RFC3339))
	}
	for _, name := range []string{"nbf", "iat"} {
		var seconds float64
		if all[name] == nil {
			continue
		}
		if err := json.Unmarshal(all[name], &seconds); err != nil || seconds > float64(now.Add(skew).Unix()) {
			return fmt.Errorf("the JWT is not valid yet (%s)", name)
		}
	}
	return nil
}

// longestName is the longest name of a caller, in bytes.
const longestName = 256

func (c claims) name(claim string) (string, error) {
	var name string
	if err := json.Unmarshal(c[claim], &name); err != nil || name == "" || len(name) > longestName ||
		escape.Deceptive(name) || strings.TrimSpace(name) != name {
		return "", fmt.Errorf("the JWT has no valid name: its claim %s is no text of 1 to %d bytes without blanks at "+
			"its ends", claim, longestName)
	}
	if claim == "email" && !c.true("email_verified") {
		return "", errors.New("the JWT has no valid name: the issuer has not verified the e-mail address (email_verified)")
	}
	return name, nil
}

// true says whether a claim is true. Some issuers write the word as a text.
func (c claims) true(claim string) bool {
	return string(c[claim]) == `true` || string(c[claim]) == `"true"`
}

// role is the most powerful role that a claim names.
func (c claims) role(claim string) (role access.Role) {
	for _, text := range c.texts(claim) {
		if named, known := access.ParseRole(text); known {
			role = max(role, named)
		}
	}
	return role
}

// producers are the globs on names of producers that a claim holds.
func (c claims) producers(claim string) (globs []string) {
	for _, text := range c.texts(claim) {
		if access.CheckProducerGlob(text) == nil {
			globs = append(globs, text)
		}
	}
	return globs
}

// texts are the texts of a claim that is a text or a list. Values of other types count for nothing: issuers have claims
// of these names for other programs too.
func (c claims) texts(claim string) (texts []string) {
	var single string
	if json.Unmarshal(c[claim], &single) == nil {
		return []string{single}
	}
	var list []any
	_ = json.Unmarshal(c[claim], &list) // another type
	for _, item := range list {
		if text, is := item.(string); is {
			texts = append(texts, text)
		}
	}
	return texts
}
