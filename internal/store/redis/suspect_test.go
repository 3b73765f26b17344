package redis_test

import (
	"testing"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
)

// What was created in the very millisecond of a loss may have been published before it. What came later was not.
func TestSuspicionHoldsForItsMillisecond(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before int64
		copies int
	}{"the same": {0, 1}, "the one before": {1, 0}} {
		store, client, _ := fresh(t, redisstore.Config{Shards: 1})
		create(t, store, half("1"))
		record, err := store.Get(t.Context(), halfmsg.Name{Producer: "orders", ID: "1"})
		must.Succeed(t, err)
		at := record.CreatedAt.UnixMilli() - tc.before
		must.Succeed(t, client.Set(t.Context(), "msghandler:{00}:suspect", at, 0).Err())
		must.Succeed(t, client.HSet(t.Context(), "msghandler:{00}:pulse", "suspect", at).Err())
		if claim := submit(t, store, half("1").Name)[0]; claim.Copies != tc.copies {
			t.Errorf("a loss in %s millisecond: %d copies, want %d", name, claim.Copies, tc.copies)
		}
	}
}
