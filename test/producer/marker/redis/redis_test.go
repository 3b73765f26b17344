// Package redis_test tests redis/redismarker on a real Redis.
package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/markertest"
	"github.com/msghandler/msghandler/redis/redismarker"
	"github.com/msghandler/msghandler/test/servers"
)

func store(t *testing.T, client goredis.UniversalClient, producer string) *redismarker.Store {
	t.Helper()
	s, err := redismarker.New(redismarker.Config{Client: client, Producer: producer})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func client(t *testing.T, addresses ...string) goredis.UniversalClient {
	t.Helper()
	c := goredis.NewUniversalClient(&goredis.UniversalOptions{Addrs: addresses, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// conform runs the suite on one Redis; each subtest is a producer with its own name.
func conform(t *testing.T, addresses ...string) {
	markertest.Run(t, func(t *testing.T) marker.Store { return store(t, client(t, addresses...), t.Name()) })
}

func TestConformanceOnMiniredis(t *testing.T) {
	t.Parallel()
	conform(t, miniredis.RunT(t).Addr())
}

func TestConformanceOnRedis(t *testing.T) {
	t.Parallel()
	conform(t, servers.Redis(t).Addr)
}

func TestConformanceOnACluster(t *testing.T) {
	t.Parallel()
	conform(t, servers.RedisCluster(t)...)
}

func TestKeysAreReadableForOperators(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	s := store(t, client(t, mini.Addr()), "orders")
	if _, err := s.Put(t.Context(), []string{"1001"}, marker.Committed); err != nil {
		t.Fatal(err)
	}
	mini.CheckGet(t, "msghandler-marker:orders:1001", "committed")
	if ttl := mini.TTL("msghandler-marker:orders:1001"); ttl != redismarker.DefaultRetention {
		t.Errorf("expires after %v", ttl)
	}
	mini.FastForward(time.Hour)
	if _, err := s.Put(t.Context(), []string{"1001"}, marker.Committed); err != nil {
		t.Fatal(err)
	}
	mini.FastForward(redismarker.DefaultRetention)
	if found, err := s.Lookup(t.Context(), []string{"1001"}, true); err != nil || found["1001"].Definite() {
		t.Errorf("after its retention: %v, %v", found, err)
	}
}

func TestProducersShareARedis(t *testing.T) {
	t.Parallel()
	c := client(t, miniredis.RunT(t).Addr())
	orders, payments := store(t, c, "orders"), store(t, c, "payments")
	if _, err := orders.Put(t.Context(), []string{"1"}, marker.Committed); err != nil {
		t.Fatal(err)
	}
	if found, err := payments.Lookup(t.Context(), []string{"1"}, false); err != nil || found["1"].Definite() {
		t.Errorf("another producer's marker: %v, %v", found, err)
	}
}

func TestForeignKeyAffectsNoOtherMarker(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	if _, err := mini.Lpush("msghandler-marker:orders:list", "x"); err != nil {
		t.Fatal(err)
	}
	if err := mini.Set("msghandler-marker:orders:text", "x"); err != nil {
		t.Fatal(err)
	}
	s := store(t, client(t, mini.Addr()), "orders")
	for range 2 {
		standing, err := s.Put(t.Context(), []string{"list", "text", "good"}, marker.Committed)
		if err != nil || len(standing) != 1 || standing["good"] != marker.Committed {
			t.Fatalf("Put: %v, %v", standing, err)
		}
		found, err := s.Lookup(t.Context(), []string{"list", "text", "good"}, false)
		if err != nil || len(found) != 1 || found["good"] != marker.Committed {
			t.Fatalf("Lookup: %v, %v", found, err)
		}
	}
}

func TestUnreachableRedisIsAnError(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	c := goredis.NewClient(&goredis.Options{Addr: mini.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	s := store(t, c, "orders")
	check := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := s.Put(ctx, []string{"1"}, marker.Committed); err == nil {
			t.Errorf("%s: Put says nothing", when)
		}
		if _, err := s.Lookup(ctx, []string{"1"}, false); err == nil {
			t.Errorf("%s: Lookup says nothing, so the absent marker would be believed", when)
		}
		if err := s.Delete(ctx, []string{"1"}); err == nil {
			t.Errorf("%s: Delete says nothing", when)
		}
	}
	mini.SetError("LOADING Redis is loading the dataset in memory")
	check("loading")
	mini.SetError("")
	mini.Close()
	check("away")
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	c := client(t, "127.0.0.1:1")
	for name, config := range map[string]redismarker.Config{
		"no client":   {Producer: "orders"},
		"no producer": {Client: c},
		"retention":   {Client: c, Producer: "orders", Retention: time.Millisecond},
	} {
		if _, err := redismarker.New(config); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestRefusedLoginIsNoAnswer changes the password under a store. Without an error the coordinator would take the
// silence for the answer UNKNOWN, which uses up attempts.
func TestRefusedLoginIsNoAnswer(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	server.CLI("ACL", "SETUSER", "orders", "on", ">secret", "~*", "+@all")
	c := goredis.NewClient(&goredis.Options{Addr: server.Addr, Username: "orders", Password: "secret"})
	t.Cleanup(func() { _ = c.Close() })
	s := store(t, c, "orders")
	if _, err := s.Put(t.Context(), []string{"1"}, marker.Committed); err != nil {
		t.Fatal(err)
	}
	server.CLI("ACL", "SETUSER", "orders", "resetpass", ">another")
	server.CLI("CLIENT", "KILL", "USER", "orders")
	if found, err := s.Lookup(t.Context(), []string{"1"}, true); err == nil {
		t.Errorf("Lookup: %v without an error", found)
	}
	if standing, err := s.Put(t.Context(), []string{"2"}, marker.Committed); err == nil {
		t.Errorf("Put: %v without an error", standing)
	}
	if err := s.Delete(t.Context(), []string{"1"}); err == nil {
		t.Error("Delete: no error")
	}
}
