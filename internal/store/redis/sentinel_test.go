package redis_test

import (
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/servers"
)

func TestBySentinel(t *testing.T) {
	t.Parallel()
	master := servers.Redis(t)
	// The second Sentinel does not exist.
	store := open(t, redisstore.Config{URL: "redis://" + servers.Sentinel(t, master).Addr + ",127.0.0.1:1/0?master=main"})
	create(t, store, half("1"))
	claims := submit(t, store, half("1").Name)
	settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
	settle(t, store, halfmsg.EventAcked, 0, claims...)
	if found, err := store.Check(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
	sweep(t, store)
	if keys := master.CLI("keys", "*:orders:m:1"); !strings.Contains(keys, "orders:m:1") {
		t.Errorf("on the master: %q", keys)
	}
}

// The connections to the Sentinels break together with the master, so new ones are needed as well.
func TestAFailoverIsFollowed(t *testing.T) {
	t.Parallel()
	master := servers.Redis(t)
	replica := servers.Replica(t, master)
	sentinel := servers.Sentinel(t, master, replica)
	store := open(t, redisstore.Config{URL: sentinel.URL(), MinReplicas: 1})
	create(t, store, half("1"))
	pulse(t, store)
	sentinel.CLI("CLIENT", "KILL", "TYPE", "normal")
	master.Kill()
	servers.Eventually(t, time.Minute, "the store answers again", func() bool { return store.Ping(t.Context()) == nil })
	submit(t, store, half("1").Name)
	if !replica.IsMaster() {
		t.Error("the server answers, and the replica is not the master")
	}
	master.Start()
	master.Follow(replica)
	servers.Eventually(t, time.Minute, "the replica has the new records in time", func() bool {
		return store.Create(t.Context(), []halfmsg.Message{half("2")})[0].Err == nil
	})
}
