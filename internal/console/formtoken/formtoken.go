// Package formtoken makes tokens that protect the forms of the console.
//
// A token proves that this process made a form recently, with exactly this content, and that the form was not sent
// before. So every operator has seen the number of messages before a change, no other site can forge a form, and a page
// that is reloaded changes nothing twice.
package formtoken

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"time"
)

// Lifetime is for how long a form may be used.
const Lifetime = 15 * time.Minute

// ErrInvalid is the error of a form without a valid token.
var ErrInvalid = errors.New("this form is too old, was sent before, or is from another instance: count again")

// Signer makes and checks tokens. A Signer is safe for concurrent use.
type Signer struct {
	key []byte

	mu   sync.Mutex
	used map[string]time.Time // until when a used token must be remembered
}

// New returns a Signer with a random key.
func New() *Signer {
	s := &Signer{key: make([]byte, sha256.Size), used: map[string]time.Time{}}
	_, _ = rand.Read(s.key) // crypto/rand never fails
	return s
}

// Token signs a text.
func (s *Signer) Token(text string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// Check says whether the token belongs to the text, which may be used until a time, and is not used yet.
func (s *Signer) Check(text, token string, until, now time.Time) error {
	if !hmac.Equal([]byte(s.Token(text)), []byte(token)) || now.After(until) {
		return ErrInvalid
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, used := s.used[token]; used {
		return ErrInvalid
	}
	return nil
}

// Use marks a token as used, and returns false if the token was used before.
func (s *Signer) Use(token string, until, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, end := range s.used {
		if now.After(end) {
			delete(s.used, old)
		}
	}
	if _, used := s.used[token]; used {
		return false
	}
	s.used[token] = until
	return true
}
