package oidc

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/access"
)

// cacheHalf is half of the most JWTs in a cache: about 2 MB of identities.
const cacheHalf = 4096

// cache holds the identities of verified JWTs, by their hashes, until the JWTs expire. A full half replaces the older
// half, so that old entries leave without a search. Only the issuer can make JWTs that get in. The zero value is ready
// for use.
type cache struct {
	mu         sync.RWMutex
	young, old map[[sha256.Size]byte]access.Identity
}

func (c *cache) get(sum [sha256.Size]byte, now time.Time) (access.Identity, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, known := c.young[sum]
	if !known {
		found = c.old[sum]
	}
	return found, now.Before(found.Expires)
}

func (c *cache) put(sum [sha256.Size]byte, identity access.Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.young == nil || len(c.young) >= cacheHalf {
		c.young, c.old = map[[sha256.Size]byte]access.Identity{}, c.young
	}
	c.young[sum] = identity
}
