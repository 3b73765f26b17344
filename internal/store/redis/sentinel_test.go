package redis_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
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

// The connections to the Sentinels break together with the master, so new ones are needed as well, with a password that
// was rotated meanwhile.
func TestAFailoverIsFollowed(t *testing.T) {
	t.Parallel()
	master := servers.Redis(t)
	replica := servers.Replica(t, master)
	sentinel := servers.Sentinel(t, master, replica)
	sentinel.CLI("ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all")
	at := func(password string) string {
		return sentinel.URL() + "&client_name=store&sentinel_username=app&sentinel_password=" + password
	}
	var present atomic.Pointer[address.Redis]
	rotate := func(password string) {
		where, err := address.ParseRedis(at(password))
		must.Succeed(t, err)
		present.Store(&where)
	}
	rotate("first")
	store := open(t, redisstore.Config{
		URL: at("first"), MinReplicas: 1, Present: func() address.Redis { return *present.Load() },
	})
	create(t, store, half("1"))
	pulse(t, store)
	sentinel.CLI("ACL", "SETUSER", "app", "resetpass", ">second")
	rotate("second")
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
