package redis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

func pulse(t *testing.T, store *redisstore.Store) []redisstore.Regression {
	t.Helper()
	found, err := store.Pulse(t.Context())
	must.Succeed(t, err)
	return found.Regressions
}

func TestARollbackIsDetected(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 2})
	other := open(t, redisstore.Config{URL: "redis://" + client.Options().Addr, Prefix: "msghandler", Shards: 2})
	for range 3 {
		if found := append(pulse(t, store), pulse(t, other)...); len(found) > 0 {
			t.Fatalf("without a loss: %+v", found)
		}
	}
	earlier, err := client.Dump(t.Context(), "msghandler:{01}:pulse").Result()
	must.Succeed(t, err)
	pulse(t, store)
	must.Succeed(t, client.RestoreReplace(t.Context(), "msghandler:{01}:pulse", 0, earlier).Err())
	found := pulse(t, store)
	if len(found) != 1 || found[0].Shard != 1 || !strings.Contains(found[0].What, "earlier time") {
		t.Fatalf("shard 1 went back: %+v", found)
	}
	for range 5 {
		if found = pulse(t, store); len(found) > 0 {
			t.Fatalf("the same loss again: %+v", found)
		}
	}
	if found = pulse(t, other); len(found) != 1 || found[0].Shard != 1 {
		t.Fatalf("the other store hears of the loss when the count exceeds its own again: %+v", found)
	}
	if found = append(pulse(t, other), pulse(t, store)...); len(found) > 0 {
		t.Fatalf("the same loss again: %+v", found)
	}
}

// Two servers diverge, such as a suspended master and the promoted replica. Writes acknowledged by either are missing
// on the other, however far other stores have counted there.
func TestADivergedReplicaIsDetected(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 1})
	other := open(t, redisstore.Config{URL: "redis://" + client.Options().Addr, Prefix: "msghandler", Shards: 1})
	create(t, store, half("1"))
	pulse(t, store)
	pulse(t, other)
	before, err := client.Dump(t.Context(), "msghandler:{00}:pulse").Result()
	must.Succeed(t, err)
	pulse(t, store) // on the first server only
	must.Succeed(t, client.RestoreReplace(t.Context(), "msghandler:{00}:pulse", 0, before).Err())
	for range 5 {
		if found := pulse(t, other); len(found) > 0 { // on the second server
			t.Fatalf("nothing of its own is missing: %+v", found)
		}
	}
	if claim := submit(t, store, half("1").Name)[0]; claim.Copies != 1 {
		t.Errorf("claimed with %d copies counted", claim.Copies)
	}
	for _, s := range []*redisstore.Store{store, other} {
		if found := pulse(t, s); len(found) != 1 {
			t.Errorf("two servers went on apart, and told is %+v", found)
		}
	}
}

// Coordinators come and go, and each leaves its count.
func TestCountsOfDeadInstancesAreDropped(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 1})
	pulse(t, store)
	key, long := "msghandler:{00}:pulse", time.Now().Add(-25*time.Hour).UnixMilli()
	must.Succeed(t, client.HSet(t.Context(), key, "long gone/1", long).Err())
	other := open(t, redisstore.Config{URL: "redis://" + client.Options().Addr, Prefix: "msghandler", Shards: 1})
	other.PruneNow()
	pulse(t, other)
	if counts := client.HLen(t.Context(), key).Val(); counts != 4 { // generation, clock, and two live coordinators
		t.Errorf("the pulse has %d fields", counts)
	}
	if found := append(pulse(t, store), pulse(t, other)...); len(found) > 0 {
		t.Errorf("without a loss: %+v", found)
	}
}

func TestAnEmptiedStoreIsDetected(t *testing.T) {
	t.Parallel()
	// Without appendfsync a kill may lose the last writes.
	store, client, server := fresh(t, redisstore.Config{Shards: 2}, "--appendfsync", "always")
	pulse(t, store)
	server.Kill()
	if found, err := store.Pulse(t.Context()); err == nil || len(found.Regressions) > 0 {
		t.Fatalf("while Redis is away: %+v, %v", found, err)
	}
	server.Start()
	if found := pulse(t, store); len(found) > 0 {
		t.Fatalf("after a restart without loss: %+v", found)
	}
	must.Succeed(t, client.Del(t.Context(), "msghandler:{00b}:pulse").Err())
	if found := pulse(t, store); len(found) != 1 || found[0].Shard != 0 ||
		!strings.Contains(found[0].What, "were replaced") {
		t.Fatalf("shard 0 was emptied: %+v", found)
	}
}

// A message was done when Redis lost the last moment, and so is pending again. The next copy must say that earlier
// copies may exist; later messages are first copies.
func TestMessagesRestoredByLossAreFlagged(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{Shards: 2})
	create(t, store, half("1"), half("2"))
	pulse(t, store)
	earlier := server.Copy()
	server.Stop()
	server.Start()
	claims := submit(t, store, half("1").Name)
	if claims[0].Copies != 0 {
		t.Fatalf("after a restart without loss %d copies are counted", claims[0].Copies)
	}
	settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
	settle(t, store, halfmsg.EventAcked, 0, claims...)
	pulse(t, store)
	server.PutBack(earlier)
	limit := func(memory string) {
		must.Succeed(t, client.ConfigSet(t.Context(), "maxmemory", memory).Err())
	}
	limit("1mb") // Redis is full as well, which must not hinder the detection

	// No Pulse comes between: the claim itself detects the loss. Later claims still know the suspect messages.
	flagged := func(name halfmsg.Name) {
		if claim := submit(t, store, name)[0]; claim.Copies != 1 {
			t.Errorf("%s is claimed with %d copies counted", claim.ID, claim.Copies)
		}
	}
	flagged(half("1").Name)
	if found := pulse(t, store); len(found) != 2 {
		t.Errorf("two shards went back, and told is %+v", found)
	}
	flagged(half("2").Name)
	limit("0")
	create(t, store, half("3"))
	if claim := submit(t, store, half("3").Name)[0]; claim.Copies != 0 {
		t.Errorf("a new message is claimed with %d copies counted", claim.Copies)
	}
}

// Replaced data have a generation of their own.
func TestReplacedDataAreFlagged(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 1})
	create(t, store, half("1"))
	pulse(t, store)
	must.Succeed(t, client.HSet(t.Context(), "msghandler:{00}:pulse", "generation", "another").Err())
	if claim := submit(t, store, half("1").Name)[0]; claim.Copies != 1 {
		t.Errorf("claimed with %d copies counted", claim.Copies)
	}
	if found := pulse(t, store); len(found) != 1 {
		t.Errorf("the shard was replaced, and told is %+v", found)
	}
}

// The connection stays open while the data go back: a master becomes a replica of a lagging server, and a master again.
func TestFailoverIsDetectedOnOldConnections(t *testing.T) {
	t.Parallel()
	store, _, server := fresh(t, redisstore.Config{Shards: 1})
	create(t, store, half("1"), half("2"))
	settle(t, store, halfmsg.EventCommitted, 0, submit(t, store, half("1").Name)...)
	pulse(t, store)
	lagging := servers.Replica(t, server)
	lagging.CLI("REPLICAOF", "NO", "ONE") // lags from here on
	publish := func() []halfmsg.Claim {
		claims, err := store.ClaimSendable(t.Context(), 10, time.Minute)
		if err != nil || len(claims) != 1 {
			t.Fatalf("claimed %d messages, %v", len(claims), err)
		}
		return claims
	}
	settle(t, store, halfmsg.EventAcked, 0, publish()...)
	pulse(t, store)
	server.Follow(lagging)
	server.CLI("REPLICAOF", "NO", "ONE")

	for _, claim := range append(publish(), submit(t, store, half("2").Name)...) {
		if claim.Copies != 1 {
			t.Errorf("%s is claimed with %d copies counted", claim.ID, claim.Copies)
		}
	}
	if found := pulse(t, store); len(found) != 1 {
		t.Errorf("the shard went back, and told is %+v", found)
	}
}

// A Redis with a loss and a full disk cannot record the loss. The record follows once Redis can write.
func TestAnUnrecordedLossIsKept(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{Shards: 1})
	create(t, store, half("1"))
	pulse(t, store)
	earlier := server.Copy()
	pulse(t, store)
	server.PutBack(earlier)
	server.FillDisk()
	servers.Eventually(t, time.Minute, "nothing can be written", func() bool {
		return client.Set(t.Context(), "a", "", 0).Err() != nil
	})
	name := half("1").Name
	if r := store.Submit(t.Context(), []halfmsg.Name{name}, time.Minute)[0]; r.Err == nil {
		t.Fatal("submitted on a full disk")
	}
	server.FreeDisk()
	servers.Eventually(t, time.Minute, "Redis can be written again", func() bool {
		return client.Set(t.Context(), "a", "", 0).Err() == nil
	})
	if claim := submit(t, store, name)[0]; claim.Copies != 1 {
		t.Errorf("claimed with %d copies counted", claim.Copies)
	}
}

// Within a millisecond neither the clock nor a count reveals a loss.
func TestLossWithinMillisecondIsNoticed(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	server.SetTime(time.UnixMilli(1_800_000_000_000))
	store := open(t, redisstore.Config{URL: "redis://" + server.Addr(), Prefix: "msghandler", Shards: 1})
	other := open(t, redisstore.Config{URL: "redis://" + server.Addr(), Prefix: "msghandler", Shards: 1})
	create(t, store, half("1"))
	pulse(t, store)
	pulse(t, other)
	server.Del("msghandler:{00}:pulse")
	if claim := submit(t, store, half("1").Name)[0]; claim.Copies != 1 {
		t.Errorf("claimed with %d copies counted", claim.Copies)
	}
	for _, s := range []*redisstore.Store{store, other} {
		if found := pulse(t, s); len(found) != 1 {
			t.Errorf("the shard was emptied, and told is %+v", found)
		}
	}
}

// TestEachShardHasItsOwnPulse lets one shard of two go back, and has it found by each script that compares the pulse.
func TestEachShardHasItsOwnPulse(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for call, do := range map[string]func(*redisstore.Store, []halfmsg.Name){
		"Pulse":         func(s *redisstore.Store, _ []halfmsg.Name) { _, _ = s.Pulse(ctx) },
		"Submit":        func(s *redisstore.Store, names []halfmsg.Name) { s.Submit(ctx, names, time.Minute) },
		"SubmitTrusted": func(s *redisstore.Store, names []halfmsg.Name) { s.SubmitTrusted(ctx, names, time.Minute) },
		"ClaimPending": func(s *redisstore.Store, _ []halfmsg.Name) {
			_, _ = s.ClaimPending(ctx, map[string]int{"orders": 100}, time.Minute)
		},
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			store, client, _ := fresh(t, redisstore.Config{Shards: 2, Instance: "one"})
			for i, generation := range []string{"111", "222"} { // not by chance the same
				client.HSet(ctx, fmt.Sprintf("msghandler:{%02d}:pulse", i), "generation", generation)
			}
			messages, names := halves(20, "m")
			create(t, store, messages...)
			for range 2 {
				if found := pulse(t, store); len(found) > 0 {
					t.Fatalf("without a loss: %+v", found)
				}
			}
			suspects := func() string {
				return fmt.Sprint(client.Exists(ctx, "msghandler:{00}:suspect").Val(),
					client.Exists(ctx, "msghandler:{01}:suspect").Val())
			}
			if got := suspects(); got != "0 0" {
				t.Fatalf("without a loss suspect shards are %s", got)
			}
			for name := range client.HGetAll(ctx, "msghandler:{01}:pulse").Val() {
				if strings.HasPrefix(name, "one/") {
					client.HSet(ctx, "msghandler:{01}:pulse", name, 1)
				}
			}
			do(store, names)
			if got := suspects(); got != "0 1" {
				t.Errorf("shard 1 went back, and suspect shards are %s", got)
			}
		})
	}
}
