package oidc

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/access"
)

const (
	// cacheFor is how long a verified JWT is not verified again.
	cacheFor = 30 * time.Second
	// cacheHalf is half of the most JWTs in a cache: about 2 MB of identities.
	cacheHalf = 4096
)

// cache holds the identities of verified JWTs, by their hashes. A full half replaces the older half, so that old
// entries leave without a search. Only the issuer can make JWTs that get in. The zero value is ready for use.
type cache struct {
	mu         sync.RWMutex
	young, old map[[sha256.Size]byte]cached
}

type cached struct {
	identity access.Identity
	until    time.Time
}

func (c *cache) get(sum [sha256.Size]byte, now time.Time) (access.Identity, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, known := c.young[sum]
	if !known {
		found = c.old[sum]
	}
	return found.identity, now.Before(found.until)
}

func (c *cache) put(sum [sha256.Size]byte, identity access.Identity, now time.Time) {
	until := now.Add(cacheFor)
	if identity.Expires.Before(until) {
		until = identity.Expires
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.young == nil || len(c.young) >= cacheHalf {
		c.young, c.old = map[[sha256.Size]byte]cached{}, c.young
	}
	c.young[sum] = cached{identity, until}
}
