package memory

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/store/storetest"
)

// What the loops are tested with keeps the promise that the real store keeps.
func TestTheStoreKeepsItsPromise(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Harness {
		store, now := New(), time.UnixMilli(1_700_000_000_000)
		var passed atomic.Int64
		store.now = func() time.Time { return now.Add(time.Duration(passed.Load())) }
		return storetest.Harness{
			Store:   store,
			Advance: func(d time.Duration) { passed.Add(int64(d)) },
			Expiry: func(_ *testing.T, name halfmsg.Name) time.Duration {
				if e := store.entries[name]; e.State.Final() {
					return e.ends.Sub(store.now())
				}
				return 0
			},
			Retention: Retention,
		}
	})
}
