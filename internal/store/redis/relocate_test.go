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

// failover has a replica take the place of its master, which becomes its replica.
func failover(t *testing.T, from, to *servers.RedisServer) {
	t.Helper()
	host, port, _ := strings.Cut(to.Addr, ":")
	servers.Eventually(t, time.Minute, "the master knows that the replica is in step", func() bool {
		return strings.Contains(from.Replication(), "port="+port+",state=online")
	})
	from.CLI("FAILOVER", "TO", host, port, "TIMEOUT", "20000")
	servers.Eventually(t, time.Minute, "the roles are swapped", to.IsMaster)
}

func TestStoreGoesOnAtAnotherServer(t *testing.T) {
	t.Parallel()
	store, _, from := fresh(t, redisstore.Config{Shards: 2})
	create(t, store, half("1"))
	claims := submit(t, store, half("1").Name)
	pulse(t, store)
	to := servers.Replica(t, from)
	failover(t, from, to)
	move, err := store.Relocate(t.Context(), to.URL())
	must.Succeed(t, err)
	if len(move.Findings) > 0 || move.From != from.Addr || move.To != to.Addr {
		t.Errorf("got %+v", move)
	}
	move.Take()
	create(t, store, half("2"))
	from.Kill()
	settle(t, store, halfmsg.EventCommitted, time.Minute, claims...) // the lease of before holds
	submit(t, store, half("2").Name)
	if found := pulse(t, store); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	if full, err := store.Fullness(t.Context()); err != nil || full[0].Addr != to.Addr {
		t.Errorf("fullness of %+v, %v", full, err)
	}
}

// TestLoginsBelongToTheirServer names the next server, with another password, before it has the data.
func TestLoginsBelongToTheirServer(t *testing.T) {
	t.Parallel()
	from := servers.Redis(t)
	to := servers.Replica(t, from)
	allow := func(server *servers.RedisServer, password string) (url string) {
		server.CLI("ACL", "SETUSER", "app", "on", "resetpass", ">"+password, "~*", "&*", "+@all")
		return "redis://app:" + password + "@" + server.Addr
	}
	var present atomic.Pointer[string]
	url, next := allow(from, "first"), allow(to, "second")
	present.Store(&url)
	store := open(t, redisstore.Config{URL: url, Present: func() address.Redis {
		where, err := address.ParseRedis(*present.Load())
		must.Succeed(t, err)
		return where
	}})
	present.Store(&next)
	from.CLI("CLIENT", "KILL", "USER", "app")
	servers.Eventually(t, time.Minute, "the store is let in again", func() bool { return store.Ping(t.Context()) == nil })
	to.CLI("REPLICAOF", "NO", "ONE")
	if _, err := store.Relocate(t.Context(), next); err == nil || !strings.Contains(err.Error(), "still takes writes") {
		t.Errorf("beside a master: %v", err)
	}
	allow(from, "third")
	_, err := store.Relocate(t.Context(), next)
	if err == nil || !strings.Contains(err.Error(), "does not say whether") {
		t.Errorf("beside a server that refuses the login: %v", err)
	}
}

func TestServerMayGetAnotherName(t *testing.T) {
	t.Parallel()
	store, _, server := fresh(t, redisstore.Config{})
	pulse(t, store)
	move, err := store.Relocate(t.Context(), strings.Replace(server.URL(), "127.0.0.1", "localhost", 1))
	must.Succeed(t, err)
	move.Take()
	create(t, store, half("1"))
	if full, err := store.Fullness(t.Context()); err != nil || full[0].Addr != move.To || move.To == move.From {
		t.Errorf("fullness of %+v, %v, after %+v", full, err, move)
	}
}

func TestSilentServerIsNotLeft(t *testing.T) {
	t.Parallel()
	store, _, from := fresh(t, redisstore.Config{})
	to := servers.Replica(t, from)
	to.CLI("REPLICAOF", "NO", "ONE")
	from.Freeze()
	_, err := store.Relocate(t.Context(), to.URL())
	if err == nil || !strings.Contains(err.Error(), "does not say whether") {
		t.Errorf("a server that may go on: %v", err)
	}
}

func TestOtherServersAreNotTaken(t *testing.T) {
	t.Parallel()
	store, _, from := fresh(t, redisstore.Config{})
	create(t, store, half("1"))
	pulse(t, store)
	replica := servers.Replica(t, from)
	refuses := func(url, why string) {
		t.Helper()
		if _, err := store.Relocate(t.Context(), url); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, and not %q", url, err, why)
		}
	}
	if move, err := store.Relocate(t.Context(), strings.Replace(from.URL(), "//", "//default:x@", 1)); err != nil ||
		move.To != "" {
		t.Errorf("another login: %+v, %v", move, err)
	}
	refuses("http://"+from.Addr, "redis")
	refuses("redis://"+from.Addr+"/1", "restart the coordinators")
	refuses("redis://"+from.Addr+","+replica.Addr, "restart the coordinators")
	refuses("redis://"+from.Addr+"?master=main", "restart the coordinators")
	refuses(replica.URL(), "still takes writes")
	stranger := servers.Redis(t)
	open(t, redisstore.Config{URL: stranger.URL(), Prefix: "msghandler"})
	// The replica gets nothing of what comes now.
	replica.CLI("REPLICAOF", "NO", "ONE")
	pulse(t, store)
	refuses(replica.URL(), "still takes writes")
	from.Kill()
	refuses(stranger.URL(), "another installation")
	refuses(servers.Redis(t).URL(), "another installation")
	refuses(servers.Replica(t, stranger).URL(), "promote it first")
	refuses(replica.URL(), "lacks what this coordinator has written last")
	refuses("redis://127.0.0.1:1", "cannot be used")
}
