package oidc

import (
	"crypto"
	"encoding/json"
	"errors"
	"fmt"

	oidclib "github.com/coreos/go-oidc/v3/oidc"
	jose "github.com/go-jose/go-jose/v4"
)

// keys are the keys that the issuer publishes at a time. Other keys have another cache of verified JWTs, so a withdrawn
// key verifies nothing from its withdrawal on.
type keys struct {
	provider *oidclib.Provider
	// document is the text of which the keys were read.
	document string
	public   []jose.JSONWebKey
	verified cache
}

// newKeys reads a JSON Web Key Set. Keys of unknown types, for encryption or with a secret count for nothing.
func newKeys(provider *oidclib.Provider, document string) (*keys, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal([]byte(document), &set); err != nil {
		return nil, fmt.Errorf("the answer is no JSON Web Key Set: %w", err)
	}
	if set.Keys == nil {
		return nil, errors.New("the answer is no JSON Web Key Set: it has no keys")
	}
	k := &keys{provider: provider, document: document}
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(text, &key) == nil && key.Valid() && key.IsPublic() && (key.Use == "" || key.Use == "sig") {
			k.public = append(k.public, key)
		}
	}
	return k, nil
}

// matching are the keys that may have signed a JWT with this header.
func (k *keys) matching(header jose.Header) (matching []crypto.PublicKey) {
	if k == nil {
		return nil
	}
	for _, key := range k.public {
		if (header.KeyID == "" || key.KeyID == header.KeyID) && (key.Algorithm == "" || key.Algorithm == header.Algorithm) {
			matching = append(matching, key.Key)
		}
	}
	return matching
}
