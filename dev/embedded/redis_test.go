package embedded_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/dev/embedded"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a Redis and a client of it for the time of a test.
func start(t *testing.T) (*embedded.Redis, *redis.Client) {
	t.Helper()
	r, err := embedded.StartRedis("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	options, err := redis.ParseURL(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return r, client
}

func TestTTLsRun(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := context.Background()
	for key, ttl := range map[string]time.Duration{"short": 300 * time.Millisecond, "long": time.Hour, "kept": 0} {
		if err := client.Set(ctx, key, "v", ttl).Err(); err != nil {
			t.Fatal(err)
		}
	}
	servers.Eventually(t, 10*time.Second, "the end of the short key", func() bool {
		return client.Exists(ctx, "short").Val() == 0
	})
	if n := client.Exists(ctx, "long", "kept").Val(); n != 2 {
		t.Errorf("%d of the two keys that should stay are there", n)
	}
	if left := client.PTTL(ctx, "long").Val(); left >= time.Hour || left < time.Hour-time.Minute {
		t.Errorf("the long key has %v left", left)
	}
}

func TestClockIsTheComputers(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := context.Background()
	inScript := redis.NewScript(`local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)`)
	for _, clock := range []func() (time.Time, error){
		func() (time.Time, error) { return client.Time(ctx).Result() },
		func() (time.Time, error) {
			ms, err := inScript.Run(ctx, client, nil).Int64()
			return time.UnixMilli(ms), err
		},
	} {
		before := time.Now().Add(-time.Millisecond)
		at, err := clock()
		if err != nil {
			t.Fatal(err)
		}
		if at.Before(before) || at.After(time.Now()) {
			t.Errorf("its clock says %v, between %v and now", at, before)
		}
	}
}

func TestAdvancePutsTheClockForward(t *testing.T) {
	t.Parallel()
	r, client := start(t)
	ctx := context.Background()
	if err := client.Set(ctx, "key", "v", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	r.Advance(30 * time.Minute)
	r.Advance(29 * time.Minute)
	if client.Exists(ctx, "key").Val() != 1 {
		t.Error("the key has expired a minute early")
	}
	first := client.Time(ctx).Val()
	if ahead := time.Until(first); ahead < 58*time.Minute || ahead > 59*time.Minute {
		t.Errorf("the clock is %v ahead", ahead)
	}
	servers.Eventually(t, 10*time.Second, "the clock goes on", func() bool { return client.Time(ctx).Val().After(first) })
	r.Advance(time.Minute)
	if client.Exists(ctx, "key").Val() != 0 {
		t.Error("the key has not expired")
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	r, client := start(t)
	if r.URL() != "redis://"+r.Addr()+"/0" || !strings.HasPrefix(r.Addr(), "127.0.0.1:") {
		t.Errorf("at %q, %q", r.Addr(), r.URL())
	}
	for _, addr := range []string{":6379", "0.0.0.0:0", "192.0.2.1:0", "127.0.0.1", r.Addr()} {
		if second, err := embedded.StartRedis(addr); err == nil {
			second.Close()
			t.Errorf("started at %q", addr)
		}
	}
	r.Close()
	r.Close()
	if err := client.Ping(context.Background()).Err(); err == nil {
		t.Error("answers after Close")
	}
}
