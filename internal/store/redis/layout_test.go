package redis_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

func TestShardsAreThoseOfTheData(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{})
	create(t, store, half("1"))
	if got := client.HGetAll(t.Context(), "msghandler:meta").Val(); got["shards"] != "1" || got["layout"] != "1" {
		t.Errorf("new data on one server: %v", got)
	}
	wide := open(t, redisstore.Config{URL: server.URL(), Prefix: "wide", Shards: 16})
	messages, names := numbered(50, 10)
	create(t, wide, messages...)
	if claims := submit(t, open(t, redisstore.Config{URL: server.URL(), Prefix: "wide"}), names...); len(claims) != 50 {
		t.Errorf("found %d of 50 messages", len(claims))
	}
}

// The ID of the installation is that of the data: each start reads it, another prefix has another, and a running
// coordinator writes it again where Redis has lost it.
func TestInstallationIsThatOfTheData(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{})
	id := store.Installation()
	of := func(prefix string) string {
		return open(t, redisstore.Config{URL: server.URL(), Prefix: prefix}).Installation()
	}
	if again, other := of("msghandler"), of("other"); len(id) < 26 || again != id || other == id || other == "" {
		t.Errorf("the first start says %q, the next %q, another prefix %q", id, again, other)
	}
	client.FlushAll(t.Context())
	if _, err := store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := of("msghandler"); again != id {
		t.Errorf("after the loss of the data a start says %q, want %q", again, id)
	}
}

func TestTagsLieWhereRedisSays(t *testing.T) {
	t.Parallel()
	const slots, shards = 16384, 64
	client := redis.NewClient(&redis.Options{Addr: servers.RedisCluster(t)[0]})
	t.Cleanup(func() { _ = client.Close() })
	for i, tag := range redisstore.Tags(shards) {
		slot, err := client.ClusterKeySlot(t.Context(), "msghandler:{"+tag+"}:producers").Result()
		if err != nil || slot*shards/slots != int64(i) {
			t.Errorf("shard %d of %d has slot %d, %v", i, shards, slot, err)
		}
	}
}

func TestOtherLayoutsAreRefused(t *testing.T) {
	t.Parallel()
	_, client, server := fresh(t, redisstore.Config{})
	refused := func(layout string) {
		t.Helper()
		config := redisstore.Config{URL: server.URL()}.WithDefaults()
		_, err := redisstore.New(t.Context(), config)
		if err == nil || !strings.Contains(err.Error(), "redis.prefix msghandler holds data of layout "+layout+",") ||
			!strings.Contains(err.Error(), "run the version that wrote them, or set another redis.prefix") {
			t.Errorf("layout %s: got %v, want an error with it and the remedy", layout, err)
		}
		found, err := redisstore.Examine(t.Context(), config)
		if err != nil || !slices.ContainsFunc(found, func(f redisstore.Finding) bool { return f.Name == "redis-layout" }) {
			t.Errorf("layout %s: the findings are %+v, %v", layout, found, err)
		}
	}
	for _, other := range []string{"0", "2", "5", "-1", "two"} {
		client.HSet(t.Context(), "msghandler:meta", "layout", other)
		refused(other)
	}
}

// A Redis that lost everything has lost the layout as well. Running coordinators go on as before, so coordinators that
// start now must use the same layout.
func TestTheLayoutOutlivesALoss(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{Shards: 3})
	pulse(t, store)
	client.FlushAll(t.Context())
	if len(pulse(t, store)) == 0 {
		t.Fatal("a loss of everything was not noticed")
	}
	create(t, store, half("1"))
	submit(t, open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"}), half("1").Name)
}

// A coordinator that starts before the loss is noticed may choose another layout. The coordinators that miss the
// others' messages report two layouts, and are not ready.
func TestTwoLayoutsAreFound(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{Shards: 3})
	layoutOf := func(s *redisstore.Store) (found []redisstore.Finding) {
		t.Helper()
		all, err := s.Check(t.Context())
		must.Succeed(t, err)
		return slices.DeleteFunc(all, func(f redisstore.Finding) bool { return f.Name != "redis-layout" })
	}
	client.Del(t.Context(), "msghandler:meta")
	if found := layoutOf(store); len(found) > 0 {
		t.Errorf("where nobody has written another: %v", found)
	}
	client.Del(t.Context(), "msghandler:meta")
	newer := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	if found := layoutOf(newer); len(found) > 0 {
		t.Errorf("where the layout stands: %v", found)
	}
	if found := layoutOf(store); len(found) != 1 || found[0].Severity != redisstore.Refuse {
		t.Errorf("where another has written its own: %v", found)
	}
}
