package redis_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/internal/store/storetest"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

const retention = 10 * time.Minute

// prefixes gives every store of this run its own keys, so that tests can share a server.
var prefixes atomic.Int64

func open(t testing.TB, config redisstore.Config) *redisstore.Store {
	t.Helper()
	if config.Prefix == "" {
		config.Prefix = fmt.Sprintf("test%d", prefixes.Add(1))
	}
	config.Retention, config.HeldPerKey = retention, 1000
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	store, err := redisstore.New(ctx, config)
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// expiryOf finds the record of a message in any of the shards.
func expiryOf(client redis.UniversalClient, prefix string, shards int) func(*testing.T, halfmsg.Name) time.Duration {
	return func(t *testing.T, name halfmsg.Name) time.Duration {
		t.Helper()
		for _, tag := range redisstore.Tags(shards) {
			key := fmt.Sprintf("%s:{%s}:%s:m:%s", prefix, tag, name.Producer, name.ID)
			switch ttl, err := client.PTTL(t.Context(), key).Result(); {
			case err != nil:
				t.Fatal(err)
			case ttl == -1:
				return 0
			case ttl > 0:
				return ttl
			}
		}
		t.Fatalf("no record of %s", name)
		return 0
	}
}

func TestOnMiniredis(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		server := miniredis.RunT(t)
		now := time.UnixMilli(1_700_000_000_000)
		server.SetTime(now)
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		return storetest.Harness{
			Store: open(t, redisstore.Config{
				URL: "redis://" + server.Addr(), Prefix: "mini", Instance: "one", Shards: 5, Brokers: []string{"events"},
			}),
			Advance: func(d time.Duration) {
				now = now.Add(d)
				server.SetTime(now)
				server.FastForward(d)
			},
			Expiry: expiryOf(client, "mini", 5), Retention: retention,
		}
	})
}

func TestOnRedis(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	runOn(t, client, server.URL(), 1)
}

func TestOnCluster(t *testing.T) {
	t.Parallel()
	addrs := servers.RedisCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = client.Close() })
	runOn(t, client, "redis://"+strings.Join(addrs, ","), 16)
}

func runOn(t *testing.T, client redis.UniversalClient, url string, shards int) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		prefix := fmt.Sprintf("run%d", prefixes.Add(1))
		return storetest.Harness{
			Store:  open(t, redisstore.Config{URL: url, Prefix: prefix, Instance: "one", Brokers: []string{"events"}}),
			Expiry: expiryOf(client, prefix, shards), Retention: retention,
		}
	})
}
