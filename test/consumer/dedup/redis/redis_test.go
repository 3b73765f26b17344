// Package redis_test tests redis/redisdedup on a real Redis.
package redis_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/consumer/dedup"
	"github.com/msghandler/msghandler/consumer/dedup/deduptest"
	"github.com/msghandler/msghandler/redis/redisdedup"
	"github.com/msghandler/msghandler/test/servers"
)

func newStore(t *testing.T, address string) *redisdedup.Store {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: address, ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisdedup.New(redisdedup.Config{
		Client: client, Consumer: "payments", Lease: 10 * time.Second, Retention: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		deduptest.Run(t, func(t *testing.T) dedup.Store { return newStore(t, miniredis.RunT(t).Addr()) })
	})
	t.Run("redis-server", func(t *testing.T) {
		t.Parallel()
		server := servers.Redis(t)
		deduptest.Run(t, func(t *testing.T) dedup.Store {
			server.CLI("DEL", "msghandler-inbox:payments:orders/1")
			return newStore(t, server.Addr)
		})
	})
}

func TestLeaseAndRetentionEnd(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	one, two := newStore(t, server.Addr()), newStore(t, server.Addr())
	expect := func(s *redisdedup.Store, want dedup.Status) {
		t.Helper()
		if got, err := s.Begin(t.Context(), "orders/1"); got != want || err != nil {
			t.Fatalf("%v, %v; want %v", got, err, want)
		}
	}
	expect(one, dedup.New)
	server.FastForward(9 * time.Second)
	expect(two, dedup.Busy)
	server.FastForward(2 * time.Second)
	expect(two, dedup.New)

	// The late Release of the first instance must not release the message of the second.
	if err := one.Release(t.Context(), "orders/1"); err != nil {
		t.Fatal(err)
	}
	expect(one, dedup.Busy)
	if err := two.Done(t.Context(), "orders/1"); err != nil {
		t.Fatal(err)
	}
	server.FastForward(59 * time.Minute)
	expect(one, dedup.Done)
	server.FastForward(2 * time.Minute)
	expect(one, dedup.New)
}

// An operator or a failover empties the cache of scripts.
func TestForgottenScriptIsSentAgain(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	s := newStore(t, server.Addr)
	for range 2 {
		if status, err := s.Begin(t.Context(), "orders/1"); status != dedup.New || err != nil {
			t.Fatalf("%v, %v", status, err)
		}
		server.CLI("SCRIPT", "FLUSH")
		if err := s.Release(t.Context(), "orders/1"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnUnreachableRedisIsAnError(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	s := newStore(t, server.Addr())
	server.Close()
	if _, err := s.Begin(t.Context(), "orders/1"); err == nil {
		t.Error("Begin: no error")
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{})
	t.Cleanup(func() { _ = client.Close() })
	for name, config := range map[string]redisdedup.Config{
		"no client":   {Consumer: "payments"},
		"no consumer": {Client: client},
		"short lease": {Client: client, Consumer: "payments", Lease: time.Millisecond},
	} {
		if _, err := redisdedup.New(config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
