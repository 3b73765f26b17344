package pages

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"time"
)

// A seal proves that a form was made by this process for exactly what it says, lately, and was not sent before. So
// nobody can act without having been shown how many messages he acts on, no other site can forge a form, and a page that
// is loaded again acts once.

// sealTime is for how long a form may be looked at.
const sealTime = 15 * time.Minute

// errSeal is what a form gets that has no good seal.
var errSeal = errors.New("this form is too old, was sent before, or is from another instance: look at the count again")

// seals makes and checks seals. It is safe for concurrent use.
type seals struct {
	key []byte

	mu   sync.Mutex
	used map[string]time.Time // until when a used seal must be remembered
}

func newSeals() *seals {
	s := &seals{key: make([]byte, sha256.Size), used: map[string]time.Time{}}
	_, _ = rand.Read(s.key) // it never fails
	return s
}

// seal signs a text.
func (s *seals) seal(text string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// check says whether the seal is that of the text, which may be used until a time.
func (s *seals) check(text, seal string, until, now time.Time) error {
	if !hmac.Equal([]byte(s.seal(text)), []byte(seal)) || now.After(until) {
		return errSeal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, used := s.used[seal]; used {
		return errSeal
	}
	return nil
}

// use makes a seal worthless, and says whether it was not so before.
func (s *seals) use(seal string, until, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, end := range s.used {
		if now.After(end) {
			delete(s.used, old)
		}
	}
	if _, used := s.used[seal]; used {
		return false
	}
	s.used[seal] = until
	return true
}
