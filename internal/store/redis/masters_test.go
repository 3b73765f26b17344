package redis_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/servers"
)

// TestSilentMasterStopsNoOther freezes a master of a Cluster, thaws it, and kills it. Batches hold messages of all
// shards.
func TestSilentMasterStopsNoOther(t *testing.T) {
	t.Parallel()
	nodes := servers.RedisMasters(t, "--cluster-require-full-coverage", "no")
	_, logger := logged()
	config := redisstore.Config{URL: "redis://" + nodes[0].Addr + "?cluster=true", Logger: logger}
	store := open(t, config)
	sent := 0
	// sends sends batches for two seconds. It counts those that took longer than a second, and the messages.
	sends := func() (slow, stored, refused int) {
		t.Helper()
		for begun := time.Now(); time.Since(begun) < 2*time.Second; {
			var messages []halfmsg.Message
			for range 32 {
				sent++
				messages = append(messages, half(fmt.Sprint(sent)))
			}
			at := time.Now()
			for _, r := range store.Create(t.Context(), messages) {
				switch {
				case r.Err == nil:
					stored++
				case errors.Is(r.Err, halfmsg.ErrUnavailable):
					refused++
				default:
					t.Fatal(r.Err)
				}
			}
			if time.Since(at) > time.Second {
				slow++
			}
		}
		return slow, stored, refused
	}
	works := func(what string) {
		t.Helper()
		begun := time.Now()
		_, err := store.Pulse(t.Context())
		producers, more := store.PendingProducers(t.Context())
		claims, most := store.ClaimPending(t.Context(), map[string]int{"orders": 10}, time.Minute)
		err = errors.Join(err, more, most, store.Ping(t.Context()))
		if err != nil || len(producers) == 0 || len(claims) == 0 {
			t.Errorf("%s: producers %v, %d claims, %v", what, producers, len(claims), err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("%s: the passes took %v", what, took)
		}
	}
	if slow, stored, refused := sends(); slow > 0 || stored == 0 || refused > 0 {
		t.Fatalf("%d slow batches, %d stored, %d refused", slow, stored, refused)
	}
	for _, fault := range []struct {
		name       string
		begin, end func(*servers.RedisServer)
	}{
		{"frozen", (*servers.RedisServer).Freeze, (*servers.RedisServer).Thaw},
		{"killed", (*servers.RedisServer).Kill, (*servers.RedisServer).Start},
	} {
		fault.begin(nodes[2])
		servers.Eventually(t, 30*time.Second, "the circuit opens", func() bool {
			silent := store.SilentMasters()
			return len(silent) == 1 && silent[0].Addr == nodes[2].Addr && silent[0].Shards > 0
		})
		if slow, stored, refused := sends(); slow > 0 || stored == 0 || refused == 0 || stored < refused {
			t.Errorf("%s: %d slow batches, %d stored, %d refused", fault.name, slow, stored, refused)
		}
		works(fault.name)
		fault.end(nodes[2])
		servers.Eventually(t, 30*time.Second, "the circuit closes", func() bool {
			return len(store.SilentMasters()) == 0
		})
		servers.Eventually(t, 30*time.Second, "all shards work", func() bool {
			_, stored, refused := sends()
			return stored > 0 && refused == 0
		})
	}
}
