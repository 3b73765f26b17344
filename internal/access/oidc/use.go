package oidc

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	oidclib "github.com/coreos/go-oidc/v3/oidc"
	jose "github.com/go-jose/go-jose/v4"
)

// use is what a JWT is shown for. An access token allows calls, and an ID token says that a person has logged in to a
// client: neither counts as the other.
type use uint8

const (
	call use = iota
	login
)

var (
	errPurpose     = errors.New("the JWT is for another purpose: its typ is neither JWT nor at+jwt")
	errIDToken     = errors.New("the JWT is an ID token, which counts at a login only: show an access token")
	errAccessToken = errors.New("the JWT is an access token, which counts in calls only: a login needs an ID token")
)

// audienceOf is what aud of a JWT must name.
func (c Config) audienceOf(shown use) string {
	if shown == login {
		return c.LoginClient
	}
	return c.Audience
}

// accessType is the type in the header of an access token of RFC 9068.
const accessType = "at+jwt"

func typeOf(header jose.Header) string {
	typ, _ := header.ExtraHeaders[jose.HeaderType].(string)
	return strings.TrimPrefix(strings.ToLower(typ), "application/")
}

// checkType refuses a JWT that is neither an ID token nor an access token. Issuers sign JWTs for other purposes with
// the same keys, such as to log a person out.
func checkType(header jose.Header) error {
	if !slices.Contains([]string{"", "jwt", accessType}, typeOf(header)) {
		return errPurpose
	}
	return nil
}

// marks are the claims by which issuers tell ID tokens from access tokens. Their values may be of any type.
type marks struct {
	// Type is Keycloak's: ID or Bearer.
	Type       json.RawMessage `json:"typ"`
	Party      json.RawMessage `json:"azp"`
	Nonce      json.RawMessage `json:"nonce"`
	AccessHash json.RawMessage `json:"at_hash"`
	CodeHash   json.RawMessage `json:"c_hash"`
}

// checkUse refuses an access token at a login, and an ID token of the login in a call. ID tokens of other clients are
// told by Keycloak's mark alone: Dex writes nonce and at_hash in access tokens too, and programs show ID tokens of Dex
// or Google for an audience of their own.
func (c Config) checkUse(shown use, header jose.Header, t *oidclib.IDToken) error {
	var m marks
	if err := t.Claims(&m); err != nil {
		return refusal(err)
	}
	isAccess := typeOf(header) == accessType || is(m.Type, "Bearer")
	switch {
	case shown == login && isAccess:
		return errAccessToken
	case shown == call && (is(m.Type, "ID") || !isAccess && m.ofLogin(t.Audience, c.LoginClient)):
		return errIDToken
	}
	return nil
}

// ofLogin says whether a JWT that does not name its type is an ID token for a client. The client's name alone does not
// say so: some issuers name all clients of a project in aud of access tokens.
func (m marks) ofLogin(audience []string, client string) bool {
	return client != "" && (slices.Contains(audience, client) || is(m.Party, client)) &&
		slices.ContainsFunc([]json.RawMessage{m.Nonce, m.AccessHash, m.CodeHash}, isSet)
}

// is says whether a claim is a text.
func is(claim json.RawMessage, want string) bool {
	var text string
	return json.Unmarshal(claim, &text) == nil && text == want
}

func isSet(claim json.RawMessage) bool {
	return len(claim) > 0 && !slices.Contains([]string{`null`, `""`}, string(claim))
}
