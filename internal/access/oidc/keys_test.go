package oidc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"

	jose "github.com/go-jose/go-jose/v4"
)

// Keys of other kinds neither verify a JWT nor make the other keys of the set unusable.
func TestOnlyPublicSigningKeysCount(t *testing.T) {
	t.Parallel()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text := func(id, use, algorithm string, key any) string {
		made, err := json.Marshal(jose.JSONWebKey{Key: key, KeyID: id, Use: use, Algorithm: algorithm})
		if err != nil {
			t.Fatal(err)
		}
		return string(made)
	}
	k, err := newKeys(nil, `{"keys":[`+strings.Join([]string{
		text("sig", "sig", "ES256", &private.PublicKey), text("any", "", "", &private.PublicKey),
		text("enc", "enc", "", &private.PublicKey), text("private", "sig", "ES256", private),
		text("secret", "sig", "", []byte("0123456789abcdef0123456789abcdef")),
		`{"kty":"OKP","crv":"Ed448","x":"AA","kid":"okp"}`, `{"kty":"new","kid":"new"}`, `{"kid":"none"}`, `7`,
	}, ",")+`]}`)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int{
		"sig": 1, "any": 1, "enc": 0, "private": 0, "secret": 0, "okp": 0, "new": 0, "none": 0, "": 2,
	} {
		if got := k.matching(jose.Header{KeyID: id, Algorithm: "ES256"}); len(got) != want {
			t.Errorf("%q: %d keys match, want %d", id, len(got), want)
		}
	}
	if got := k.matching(jose.Header{KeyID: "sig", Algorithm: "ES384"}); len(got) != 0 {
		t.Error("a key of ES256 matches a JWT of ES384")
	}
}
