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

// TestFullPoolIsNoSilentMaster has calls of producers and of the loops use all their connections.
func TestFullPoolIsNoSilentMaster(t *testing.T) {
	t.Parallel()
	for kind, query := range map[string]string{"server": "", "cluster": "?cluster=true"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			addr := servers.Redis(t).Addr
			if query != "" {
				addr = servers.RedisMasters(t)[0].Addr
			}
			store := open(t, redisstore.Config{URL: "redis://" + addr + query})
			if err := store.PingWithFullPools(t.Context()); err != nil {
				t.Error(err)
			}
			if silent := store.SilentMasters(); len(silent) > 0 {
				t.Errorf("silent are %v", silent)
			}
		})
	}
}

// loopsWork makes the calls of the loops that read all shards.
func loopsWork(t *testing.T, store *redisstore.Store) error {
	_, parked := store.Parked(t.Context())
	_, backlog := store.Backlog(t.Context(), 0)
	_, weights := store.UnfinishedBytes(t.Context(), []string{"orders"})
	page, undecided := store.ListReachable(t.Context(), halfmsg.Query{State: halfmsg.Pending, Limit: 1})
	if len(page.Records) == 0 {
		t.Error("no message of the reachable shards is listed")
	}
	_, archive := store.TrimArchive(t.Context())
	_, _, sweep := store.Sweep(t.Context())
	return errors.Join(parked, backlog, weights, undecided, archive, sweep)
}

// TestSilentMasterStopsNoOther freezes a master of a Cluster, thaws it, and kills it. Batches hold messages of all
// shards.
func TestSilentMasterStopsNoOther(t *testing.T) {
	t.Parallel()
	nodes := servers.RedisMasters(t, "--cluster-require-full-coverage", "no")
	_, logger := logged()
	config := redisstore.Config{URL: "redis://" + nodes[0].Addr + "?cluster=true", Logger: logger}
	store := open(t, config)
	sent := 0
	// sends sends a batch, and says how long that took.
	sends := func() (took time.Duration, stored, refused int) {
		t.Helper()
		var messages []halfmsg.Message
		for range 32 {
			sent++
			messages = append(messages, half(fmt.Sprint(sent)))
		}
		begun := time.Now()
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
		return time.Since(begun), stored, refused
	}
	// works demands that the loops' calls work, and that no silent master holds them up: at some time they take less than
	// one call to such a master.
	works := func(what string) {
		t.Helper()
		servers.Eventually(t, time.Minute, what+": calls wait for no silent master", func() bool {
			sends() // something to claim
			begun := time.Now()
			_, err := store.Pulse(t.Context())
			producers, more := store.PendingProducers(t.Context())
			claims, most := store.ClaimPending(t.Context(), map[string]int{"orders": 10}, time.Minute)
			err = errors.Join(err, more, most, store.Ping(t.Context()))
			if err != nil || len(producers) == 0 || len(claims) == 0 {
				t.Fatalf("%s: producers %v, %d claims, %v", what, producers, len(claims), err)
			}
			return time.Since(begun) < redisstore.MasterTimeout
		})
		if err := loopsWork(t, store); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, stored, refused := sends(); stored == 0 || refused > 0 {
		t.Fatalf("%d stored, %d refused", stored, refused)
	}
	works("all answer")
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
		servers.Eventually(t, time.Minute, fault.name+": a batch waits for no silent master", func() bool {
			took, stored, refused := sends()
			if stored < refused || refused == 0 {
				t.Fatalf("%s: %d stored, %d refused", fault.name, stored, refused)
			}
			return took < redisstore.MasterTimeout/2
		})
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
