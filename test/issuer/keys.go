package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	jose "github.com/go-jose/go-jose/v4"
)

// key is a signing key. It implements op.SigningKey.
type key struct {
	id        string
	algorithm jose.SignatureAlgorithm
	private   crypto.Signer
}

func (k key) ID() string                                  { return k.id }
func (k key) SignatureAlgorithm() jose.SignatureAlgorithm { return k.algorithm }
func (k key) Key() any                                    { return k.private }

// publicKey implements op.Key.
type publicKey struct{ key }

func (k publicKey) Algorithm() jose.SignatureAlgorithm { return k.algorithm }
func (k publicKey) Use() string                        { return "sig" }
func (k publicKey) Key() any                           { return k.private.Public() }

// AddKey publishes a new key for ES256, and signs with it from now on.
func (i *Issuer) AddKey() (id string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return i.storage.addKey(jose.ES256, private)
}

// AddRSAKey publishes a new key for RS256, and signs with it from now on.
func (i *Issuer) AddRSAKey() (id string, public *rsa.PublicKey) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return i.storage.addKey(jose.RS256, private), &private.PublicKey
}

// WithdrawKey publishes a key no longer. The issuer can still sign with the key, if no newer key was added.
func (i *Issuer) WithdrawKey(id string) { i.storage.withdrawKey(id) }

func (s *storage) addKey(algorithm jose.SignatureAlgorithm, private crypto.Signer) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	s.signing = key{id: fmt.Sprintf("key-%d", s.made), algorithm: algorithm, private: private}
	s.published = append(s.published, s.signing)
	return s.signing.id
}

func (s *storage) withdrawKey(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published = slices.DeleteFunc(s.published, func(k key) bool { return k.id == id })
}

// Claims are the claims of a JWT of this issuer for a subject and an audience, valid for an hour, with others beside or
// in the place of the usual ones.
func (i *Issuer) Claims(subject, audience string, others map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{
		"iss": i.URL, "sub": subject, "aud": audience, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	maps.Copy(claims, others)
	return claims
}

// Sign signs claims with the current key. Headers are added to the JWT's header.
func (i *Issuer) Sign(claims map[string]any, headers map[string]any) string {
	i.storage.mu.Lock()
	signing := i.storage.signing
	i.storage.mu.Unlock()
	return SignWith(jose.SigningKey{
		Algorithm: signing.algorithm, Key: jose.JSONWebKey{Key: signing.private, KeyID: signing.id},
	}, claims, headers)
}

// SignWith signs claims with any key.
func SignWith(key jose.SigningKey, claims, headers map[string]any) string {
	options := (&jose.SignerOptions{}).WithType("JWT")
	for name, value := range headers {
		options = options.WithHeader(jose.HeaderKey(name), value)
	}
	signer, err := jose.NewSigner(key, options)
	if err != nil {
		panic(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		panic(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return text
}

// JWT is a JWT for a subject and an audience, as Claims and Sign make it.
func (i *Issuer) JWT(subject, audience string, others map[string]any) string {
	return i.Sign(i.Claims(subject, audience, others), nil)
}
