package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

func half(id string) halfmsg.Message {
	return halfmsg.Message{
		Name: halfmsg.Name{Producer: "orders", ID: id}, Exchange: "orders", RoutingKey: "order.paid",
		Body: []byte("body of " + id),
	}
}

// fresh is a store on a server of its own, and a client that looks at the keys.
func fresh(
	t *testing.T, config redisstore.Config, args ...string,
) (*redisstore.Store, *redis.Client, *servers.RedisServer) {
	t.Helper()
	server := servers.Redis(t, args...)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	config.URL = server.URL()
	if config.Prefix == "" {
		config.Prefix = "msghandler"
	}
	return open(t, config), client, server
}

func create(t *testing.T, store *redisstore.Store, messages ...halfmsg.Message) {
	t.Helper()
	for i, r := range store.Create(t.Context(), messages) {
		if r.Err != nil {
			t.Fatalf("create %s: %v", messages[i].Name, r.Err)
		}
	}
}

func submit(t *testing.T, store *redisstore.Store, names ...halfmsg.Name) []halfmsg.Claim {
	t.Helper()
	var claims []halfmsg.Claim
	for i, r := range store.Submit(t.Context(), names, time.Minute) {
		if r.Err != nil || r.Claim == nil {
			t.Fatalf("submit %s: %v, %v", names[i], r.State, r.Err)
		}
		claims = append(claims, *r.Claim)
	}
	return claims
}

func settle(t *testing.T, store *redisstore.Store, event halfmsg.Event, hold time.Duration, claims ...halfmsg.Claim) {
	t.Helper()
	for i, r := range word(t, store, event, hold, claims...) {
		if r.Err != nil {
			t.Fatalf("%s on %s: %v, %v", event, claims[i].Name, r.State, r.Err)
		}
	}
}

func word(
	t *testing.T, store *redisstore.Store, event halfmsg.Event, hold time.Duration, claims ...halfmsg.Claim,
) []halfmsg.Result {
	t.Helper()
	var settlements []halfmsg.Settlement
	for _, c := range claims {
		settlements = append(settlements, halfmsg.Settlement{
			Name: c.Name, OrderingKey: c.OrderingKey, Token: c.Token, Event: event, Hold: hold,
		})
	}
	return store.Settle(t.Context(), settlements)
}

// key finds a key of the only message with that id.
func key(t *testing.T, client *redis.Client, end string) string {
	t.Helper()
	found, err := client.Keys(t.Context(), "*:orders:"+end).Result()
	if err != nil || len(found) != 1 {
		t.Fatalf("keys that end in %s: %v, %v", end, found, err)
	}
	return found[0]
}

func TestScriptsForgottenAreLoadedAgain(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	flush := func() {
		must.Succeed(t, client.ScriptFlush(t.Context()).Err())
	}
	for i := range 3 {
		var messages []halfmsg.Message
		var names []halfmsg.Name
		for j := range 40 {
			messages = append(messages, half(fmt.Sprintf("%d-%d", i, j)))
			names = append(names, messages[j].Name)
		}
		flush()
		create(t, store, messages...)
		flush()
		claims := submit(t, store, names...)
		flush()
		settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
		flush()
		settle(t, store, halfmsg.EventAcked, 0, claims...)
	}
}

func TestFullRedisOnlyFinishesOldMessages(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	ctx := t.Context()
	create(t, store, half("old"), half("waiting"))
	must.Succeed(t, client.ConfigSet(ctx, "maxmemory", "1mb").Err())
	if r := store.Create(ctx, []halfmsg.Message{half("new")})[0]; !errors.Is(r.Err, halfmsg.ErrFull) {
		t.Errorf("create: %v, want ErrFull", r.Err)
	}
	if _, err := store.Get(ctx, half("new").Name); !errors.Is(err, halfmsg.ErrNotFound) {
		t.Errorf("something of the refused message is there: %v", err)
	}
	// A coordinator that starts now needs no room either.
	late := open(t, redisstore.Config{URL: "redis://" + client.Options().Addr, Prefix: "msghandler"})
	claims := submit(t, late, half("old").Name)
	settle(t, late, halfmsg.EventCommitted, 0, claims...)
	claims, err := store.ClaimSendable(ctx, 10, time.Minute)
	if err != nil || len(claims) != 1 {
		t.Fatalf("claim: %v, %v", claims, err)
	}
	settle(t, store, halfmsg.EventAcked, 0, claims...)
	if r := store.Rollback(ctx, []halfmsg.Name{half("waiting").Name})[0]; r.Err != nil {
		t.Errorf("rollback: %v", r.Err)
	}
	must.Succeed(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	create(t, store, half("new"))
}

func TestAnotherNumberOfShardsIsRefused(t *testing.T) {
	t.Parallel()
	_, _, server := fresh(t, redisstore.Config{Shards: 16})
	_, err := redisstore.New(t.Context(), redisstore.Config{URL: server.URL(), Shards: 8}.WithDefaults())
	if err == nil || !strings.Contains(err.Error(), "16") || !strings.Contains(err.Error(), "8") ||
		!strings.Contains(err.Error(), "redis.shards") {
		t.Fatalf("got %v, want an error with both numbers and the remedy", err)
	}
	if errors.Is(err, halfmsg.ErrUnavailable) || errors.Is(err, halfmsg.ErrUncertain) {
		t.Error("the error says that waiting helps")
	}
	open(t, redisstore.Config{URL: server.URL(), Shards: 8, Prefix: "elsewhere"})
}

func TestKilledRedisRecovers(t *testing.T) {
	t.Parallel()
	store, _, server := fresh(t, redisstore.Config{})
	ctx := t.Context()
	create(t, store, half("1"))
	server.Kill()
	for range 3 {
		r := store.Create(ctx, []halfmsg.Message{half("2")})[0]
		if !errors.Is(r.Err, halfmsg.ErrUnavailable) && !errors.Is(r.Err, halfmsg.ErrUncertain) {
			t.Errorf("create while Redis is away: %v", r.Err)
		}
		if _, err := store.PendingProducers(ctx); err == nil {
			t.Error("producers were named by nobody")
		}
		if _, err := store.ClaimSendable(ctx, 10, time.Minute); err == nil {
			t.Error("no error while Redis is away")
		}
	}
	// By now no connection is left that looks alive.
	if r := store.Submit(ctx, []halfmsg.Name{half("1").Name}, time.Minute)[0]; !errors.Is(r.Err, halfmsg.ErrUnavailable) {
		t.Errorf("submit while Redis is away: %v, want ErrUnavailable", r.Err)
	}
	if err := store.Ping(ctx); !errors.Is(err, halfmsg.ErrUnavailable) {
		t.Errorf("ping while Redis is away: %v", err)
	}
	server.Start()
	servers.Eventually(t, 10*time.Second, "the store answers again", func() bool { return store.Ping(ctx) == nil })
	create(t, store, half("2"))
	submit(t, store, half("2").Name)
	_, err := redisstore.New(ctx, redisstore.Config{URL: "redis://127.0.0.1:1"}.WithDefaults())
	if !errors.Is(err, halfmsg.ErrUnavailable) {
		t.Errorf("New without a server: %v", err)
	}
}

func TestADeadlineIsKept(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	create(t, store, half("1"))
	paused := make(chan error, 1)
	go func() { paused <- client.Do(context.WithoutCancel(t.Context()), "client", "pause", 5000, "all").Err() }()
	must.Succeed(t, <-paused)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	r := store.Rollback(ctx, []halfmsg.Name{half("1").Name})[0]
	if !errors.Is(r.Err, halfmsg.ErrUncertain) {
		t.Errorf("a call without an answer: %v, want ErrUncertain", r.Err)
	}
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("the call took %v", took)
	}
	// Calls without an answer may be repeated.
	servers.Eventually(t, 30*time.Second, "the message is rolled back", func() bool {
		r := store.Rollback(t.Context(), []halfmsg.Name{half("1").Name})[0]
		return r.Err == nil && r.State == halfmsg.RolledBack
	})
}

func TestFindings(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{})
	ctx := t.Context()
	check := func(want ...string) {
		t.Helper()
		found, err := store.Check(ctx)
		if err != nil || len(found) != len(want) {
			t.Fatalf("found %v, %v; want %q", found, err, want)
		}
		for i, f := range found {
			if text := f.Severity.String() + " " + f.What + " " + f.Remedy; !strings.Contains(text, want[i]) ||
				!strings.Contains(text, server.Addr) {
				t.Errorf("found %q, want %q", text, want[i])
			}
		}
	}
	check()
	for name, value := range map[string]string{"maxmemory-policy": "allkeys-lru", "appendonly": "no"} {
		must.Succeed(t, client.ConfigSet(ctx, name, value).Err())
	}
	check("maxmemory-policy allkeys-lru", "appendonly yes")
	client.ConfigSet(ctx, "maxmemory-policy", "noeviction")
	client.ConfigSet(ctx, "save", "60 1")
	check()
	must.Succeed(t, client.ReplicaOf(ctx, "127.0.0.1", "1").Err())
	check("is a replica")
	if r := store.Create(ctx, []halfmsg.Message{half("1")})[0]; !errors.Is(r.Err, halfmsg.ErrUnavailable) {
		t.Errorf("create on a replica: %v", r.Err)
	}
}

func TestReplicasAreWaitedFor(t *testing.T) {
	t.Parallel()
	store, client, master := fresh(t, redisstore.Config{MinReplicas: 2})
	create := func() halfmsg.Result { return store.Create(t.Context(), []halfmsg.Message{half("1"), half("2")})[0] }
	for range 2 { // the second time the message exists, but on no replica
		if r := create(); !errors.Is(r.Err, halfmsg.ErrUncertain) {
			t.Fatalf("without a replica: %v, %v", r.State, r.Err)
		}
	}
	_, port, _ := strings.Cut(master.Addr, ":")
	servers.Redis(t, "--replicaof", "127.0.0.1", port, "--repl-diskless-sync-delay", "0")
	servers.Eventually(t, 30*time.Second, "a single replica has the message, which is not enough", func() bool {
		r := create()
		if !errors.Is(r.Err, halfmsg.ErrUncertain) {
			t.Fatalf("with a replica of two: %v, %v", r.State, r.Err)
		}
		return strings.Contains(r.Err.Error(), "only 1 of 2")
	})
	servers.Redis(t, "--replicaof", "127.0.0.1", port, "--repl-diskless-sync-delay", "0")
	servers.Eventually(t, 30*time.Second, "both replicas have the message", func() bool {
		r := create()
		return r.Err == nil && r.State == halfmsg.Pending
	})
	// The last message has filled Redis, and is on the replica.
	must.Succeed(t, client.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	if err := store.AwaitReplicas(t.Context()); err != nil {
		t.Errorf("with a full Redis: %v", err)
	}
	if r := create(); !errors.Is(r.Err, halfmsg.ErrFull) {
		t.Errorf("sent to a full Redis: %v, %v", r.State, r.Err)
	}
}

// TestIdleIsCheap counts the commands of a pass without work.
func TestIdleIsCheap(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 16})
	ctx := t.Context()
	must.Succeed(t, client.ConfigResetStat(ctx).Err())
	if _, err := store.PendingProducers(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := store.ClaimSendable(ctx, 500, time.Minute); err != nil {
		t.Fatal(err)
	}
	text := client.Info(ctx, "commandstats").Val()
	if !strings.Contains(text, "cmdstat_evalsha:calls=16,") {
		t.Errorf("more or less than 1 script a shard:\n%s", text)
	}
}

func TestClockThatJumpedLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Indexed(redisstore.Config{}))
	ctx := t.Context()
	create(t, store, half("1"))
	far := float64(time.Now().AddDate(3, 0, 0).UnixMilli())
	must.Succeed(t, client.ZAdd(ctx, key(t, client, "pending"), redis.Z{Score: far, Member: "1"}).Err())
	claims, err := store.ClaimPending(ctx, map[string]int{"orders": 10}, time.Minute)
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %v, %v", claims, err)
	}
	// A lease that ends in a year does not hold.
	far = float64(time.Now().AddDate(0, 0, 20).UnixMilli())
	client.ZAdd(ctx, key(t, client, "pending"), redis.Z{Score: far, Member: "1"})
	if r := word(t, store, halfmsg.EventCommitted, 0, claims...)[0]; !errors.Is(r.Err, halfmsg.ErrLeaseLost) {
		t.Errorf("settled under an endless lease: %v", r.Err)
	}
	if repairs := sweep(t, store); repairs.Made != 1 {
		t.Errorf("%d repairs", repairs.Made)
	}
	if claims, _ = store.ClaimPending(ctx, map[string]int{"orders": 10}, time.Minute); len(claims) != 1 {
		t.Error("not to be claimed after the repair")
	}
}

func TestSecretsStayOutOfErrors(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://u:hush%zz@127.0.0.1:1", "redis://u:hush@127.0.0.1:1/x", "redis://u:hush@127.0.0.1:1,127.0.0.1:2/3",
		"redis://u:1/hush@127.0.0.1:1", "redis://u:1?hush@127.0.0.1:1", "redis://u:1#hush@127.0.0.1:1",
	} {
		_, err := redisstore.New(t.Context(), redisstore.Config{URL: url}.WithDefaults())
		if err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%v", err)
		}
	}
}

// logged collects what a store logs.
func logged() (*bytes.Buffer, *slog.Logger) {
	var buffer bytes.Buffer
	return &buffer, slog.New(slog.NewTextHandler(&buffer, nil))
}

// A stripped record cannot be published, so no index of messages to be published may name such a record.
func TestRecordsStayCompleteUntilPublished(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	create(t, store, half("1"))
	claims := submit(t, store, half("1").Name)
	settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
	client.Set(t.Context(), "msghandler:{00}:orders:acknowledged", "no index", 0)
	if r := word(t, store, halfmsg.EventAckedMarked, time.Minute, claims...); r[0].Err == nil {
		t.Fatal("the message was moved to an unknown index")
	}
	if n := client.ZScore(t.Context(), "msghandler:{00}:orders:sendable", "1").Val(); n == 0 {
		t.Fatal("the message is not to be published any more")
	}
	if record := client.Get(t.Context(), "msghandler:{00}:orders:m:1").Val(); !strings.HasSuffix(record, "body of 1") {
		t.Errorf("its record: %q", record)
	}
	client.Del(t.Context(), "msghandler:{00}:orders:acknowledged")
	settle(t, store, halfmsg.EventAckedMarked, time.Minute, claims...)
	if record := client.Get(t.Context(), "msghandler:{00}:orders:m:1").Val(); !strings.HasPrefix(record, "acknowledged ") {
		t.Errorf("the record of the acknowledged message: %q", record)
	}
}
