package oidc

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/access"
)

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	var c cache
	sum := func(n int) [sha256.Size]byte { return sha256.Sum256(binary.AppendVarint(nil, int64(n))) }
	now := time.Now()
	identity := access.Identity{Name: "jwt:anna", Expires: now.Add(time.Hour)}
	for n := range 5 * cacheHalf {
		c.put(sum(n), identity)
		if _, known := c.get(sum(max(0, n-cacheHalf/2)), now); !known {
			t.Fatalf("of %d JWTs a young JWT was forgotten", n)
		}
		if all := len(c.young) + len(c.old); all > 2*cacheHalf {
			t.Fatalf("the cache holds %d", all)
		}
	}
	if _, known := c.get(sum(0), now); known {
		t.Error("the oldest JWT is cached")
	}
	if _, known := c.get(sum(5*cacheHalf-1), identity.Expires); known {
		t.Error("a JWT outlives its time in the cache")
	}
}
