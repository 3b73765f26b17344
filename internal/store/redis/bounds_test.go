package redis_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
)

// numbered makes n messages with bodies of some size.
func numbered(n, size int) (messages []halfmsg.Message, names []halfmsg.Name) {
	for i := range n {
		m := half(fmt.Sprint(i))
		m.Body = make([]byte, size)
		messages, names = append(messages, m), append(names, m.Name)
	}
	return messages, names
}

// TestAClaimIsBoundedInBytes has more waiting than one claim may bring into memory.
func TestAClaimIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	const n, body, most = 48, 1 << 20, 40 << 20
	for _, shards := range []int{1, 16} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			store, _, _ := fresh(t, redisstore.Config{Shards: shards})
			messages, names := numbered(n, body)
			for some := range slices.Chunk(messages, 8) { // a slow disk writes as much within the time of one call
				create(t, store, some...)
			}
			claimed := 0
			claims, err := store.ClaimPending(t.Context(), map[string]int{"orders": n}, time.Minute)
			if err != nil || len(claims) == 0 || len(claims)*body > most {
				t.Fatalf("claimed %d MiB at first, %v", len(claims), err)
			}
			settle(t, store, halfmsg.EventReleased, 0, claims...)
			for i, r := range store.Submit(t.Context(), names, time.Minute) {
				if r.Err != nil || r.State != halfmsg.Pending {
					t.Fatalf("item %d: %v, %v", i, r.State, r.Err)
				}
				if r.Claim != nil {
					claimed++
				}
			}
			if claimed == 0 || claimed*body > most {
				t.Fatalf("a Submit claimed %d MiB", claimed)
			}
			for claimed < n { // the remaining messages are due at once
				claims, err := store.ClaimPending(t.Context(), map[string]int{"orders": n}, time.Minute)
				if err != nil || len(claims) == 0 || len(claims)*body > most {
					t.Fatalf("claimed %d MiB, %v", len(claims), err)
				}
				claimed += len(claims)
			}
		})
	}
}

// TestClaimIsFilledFromOneShard has all due messages in one shard, whose reply lists a part of its messages at a time.
func TestClaimIsFilledFromOneShard(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Indexed(redisstore.Config{Shards: 16}))
	messages, names := numbered(2400, 10)
	for part := range slices.Chunk(messages, 50) {
		create(t, store, part...)
	}
	inOne, err := client.ZRange(t.Context(), "msghandler:{05ad}:orders:pending", 0, -1).Result()
	if err != nil || len(inOne) < 110 {
		t.Fatalf("%d messages in a single shard, %v", len(inOne), err)
	}
	stay := map[string]bool{}
	for _, id := range inOne {
		stay[id] = true
	}
	var others []halfmsg.Name
	for _, name := range names {
		if !stay[name.ID] {
			others = append(others, name)
		}
	}
	store.Rollback(t.Context(), others)
	claims, err := store.ClaimPending(t.Context(), map[string]int{"orders": 100}, time.Minute)
	if err != nil || len(claims) != 100 {
		t.Errorf("claimed %d, %v", len(claims), err)
	}

	// Nor does a listing run ahead of a shard that lists a part at a time.
	later := []halfmsg.Message{}
	for i := range 30 {
		later = append(later, half(fmt.Sprintf("later-%d", i)))
	}
	create(t, store, later...)
	listed := map[string]bool{}
	for query := (halfmsg.Query{State: halfmsg.Pending, Limit: 100}); ; {
		page, err := store.List(t.Context(), query)
		must.Succeed(t, err)
		for _, r := range page.Records {
			listed[r.ID] = true
		}
		if query.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	if len(listed) != len(inOne)+len(later) {
		t.Errorf("listed %d of %d", len(listed), len(inOne)+len(later))
	}
}

// TestCallsAreBounded counts the scripts that a large batch is split into.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 1})
	calls := func(do func()) string {
		client.ConfigResetStat(t.Context())
		do()
		_, rest, _ := strings.Cut(client.Info(t.Context(), "commandstats").Val(), "cmdstat_evalsha:calls=")
		count, _, _ := strings.Cut(rest, ",")
		return count
	}
	small, _ := numbered(1200, 10)
	if got := calls(func() { create(t, store, small...) }); got != "6" {
		t.Errorf("1200 messages went in %s calls, want 6 of at most 200", got)
	}
	large, _ := numbered(12, 1<<20)
	for i := range large {
		large[i].ID = "large" + large[i].ID
		_, _ = rand.Read(large[i].Body) // incompressible
	}
	if got := calls(func() { create(t, store, large...) }); got != "4" {
		t.Errorf("12 MiB went in %s calls, want 4 of at most 4 MiB", got)
	}
}

// TestPromptBacklogGoesInLargerSlices stores the outcomes of 80 messages of a backlog beside a new message. Those of a
// producer that answers without delay go in one call, and those of others in several.
func TestPromptBacklogGoesInLargerSlices(t *testing.T) {
	t.Parallel()
	const n = 80
	for _, prompt := range []bool{true, false} {
		var calls atomic.Int64
		store, _, _ := fresh(t, redisstore.Config{Shards: 1, Ran: func(script string, _ int, _ time.Duration) {
			if script == "move" {
				calls.Add(1)
			}
		}})
		messages, _ := numbered(n, 10)
		create(t, store, messages...)
		claims, err := store.ClaimPending(t.Context(), map[string]int{"orders": n}, time.Minute)
		if err != nil || len(claims) != n {
			t.Fatalf("claimed %d, %v", len(claims), err)
		}
		settlements := make([]halfmsg.Settlement, n)
		for i, claim := range claims {
			settlements[i] = halfmsg.Settlement{
				Name: claim.Name, Token: claim.Token, Event: halfmsg.EventUnknown, After: time.Hour, Cause: "not yet",
				Backlog: true, Prompt: prompt,
			}
		}
		create(t, store, half("new"))
		for _, r := range store.Settle(t.Context(), settlements) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if got := calls.Load(); (got == 1) != prompt {
			t.Errorf("prompt %v: %d outcomes went in %d calls", prompt, n, got)
		}
	}
}

// TestKeysOfOthersStay sweeps and works beside keys that resemble the store's keys.
func TestKeysOfOthersStay(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Prefix: "app"})
	foreign := []string{
		"app", "app:other", "app:{00}", "app:{00}:x", "app:{00}:a:b", "application:{00}:orders:m:1", "other:{00}:orders:m:1",
	}
	for _, key := range foreign {
		must.Succeed(t, client.Set(t.Context(), key, "theirs", 0).Err())
	}
	create(t, store, half("1"))
	sweep(t, store)
	for _, key := range foreign {
		if got, err := client.Get(t.Context(), key).Result(); err != nil || got != "theirs" ||
			client.TTL(t.Context(), key).Val() != -1 {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	_, client, server := fresh(t, redisstore.Config{})
	must.Succeed(t, client.ConfigSet(t.Context(), "requirepass", "se:c@ret").Err())
	for _, url := range []string{
		"redis://:se%3Ac%40ret@" + server.Addr, "redis://:se%3Ac%40ret@" + server.Addr + "/3",
		"redis://default:se%3Ac%40ret@" + server.Addr + "/0?client_name=x",
	} {
		store := open(t, redisstore.Config{URL: url})
		create(t, store, half("1"))
	}
	for _, url := range []string{
		"127.0.0.1:6379", "http://127.0.0.1", "redis://a,,b", "redis://a,b/3", "redis://a,b?master=x&cluster=true",
		"redis://a?nonsense=1",
	} {
		_, err := redisstore.New(t.Context(), redisstore.Config{URL: url}.WithDefaults())
		if err == nil || !strings.Contains(err.Error(), "redis URL") {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, config := range []redisstore.Config{{Prefix: "a{b}"}, {Prefix: "a*"}, {Shards: -1}, {Shards: 5000}} {
		config.URL = server.URL()
		if _, err := redisstore.New(t.Context(), config.WithDefaults()); err == nil {
			t.Errorf("%+v was taken", config)
		}
	}
	wrong := "redis://:nonsense@" + server.Addr
	if _, err := redisstore.New(t.Context(), redisstore.Config{URL: wrong}.WithDefaults()); err == nil ||
		strings.Contains(err.Error(), "nonsense") ||
		!strings.Contains(err.Error(), "set the present user and password in redis.url") {
		t.Errorf("a wrong password: %v", err)
	}
}

// TestAProducerKeepsToItsQuota has a producer with more unfinished messages than its quota, beside another producer
// within the quota.
func TestAProducerKeepsToItsQuota(t *testing.T) {
	t.Parallel()
	const quota = 1600
	store, _, _ := fresh(t, redisstore.Config{Shards: 16, Quota: fixed(quota)})
	messages, names := numbered(2*quota, 10)
	var kept, over []int
	for i, r := range store.Create(t.Context(), messages) {
		switch {
		case r.Err == nil && r.State == halfmsg.Pending:
			kept = append(kept, i)
		case errors.Is(r.Err, halfmsg.ErrOverQuota) && strings.Contains(r.Err.Error(), messages[i].Producer):
			over = append(over, i)
		default:
			t.Fatalf("message %d: %v, %v", i, r.State, r.Err)
		}
	}
	if len(kept) != quota {
		t.Errorf("%d of %d were stored, want %d", len(kept), len(messages), quota)
	}
	other := half("1")
	other.Producer = "other"
	create(t, store, other)
	// A stored message gets its state as an answer even over the quota, whatever the state is by now.
	settle(t, store, halfmsg.EventCommitted, 0, submit(t, store, names[kept[0]])...)
	again := []halfmsg.Message{messages[kept[0]], messages[kept[1]], messages[over[0]]}
	for i, r := range store.Create(t.Context(), again) {
		state, wrong := []halfmsg.State{halfmsg.Sendable, halfmsg.Pending, halfmsg.None}[i], i < 2 && r.Err != nil
		if r.State != state || wrong || i == 2 && !errors.Is(r.Err, halfmsg.ErrOverQuota) {
			t.Errorf("repeated, message %d: %v, %v", i, r.State, r.Err)
		}
	}
	// Finished messages make room.
	for _, i := range kept[1:] {
		if r := store.Rollback(t.Context(), []halfmsg.Name{names[i]})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	create(t, store, messages[over[0]])
}

func TestOwnersAreThoseWhoWork(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Indexed(redisstore.Config{Instance: "one/a"}))
	messages, names := numbered(2000, 1)
	create(t, store, messages...)
	if owners, err := store.Owners(t.Context()); err != nil || owners.Held != 0 || len(owners.All) != 0 {
		t.Errorf("owners of an idle store: %+v, %v, want none", owners, err)
	}
	claims := submit(t, store, names...)
	settle(t, store, halfmsg.EventReleased, 0, claims[:500]...)
	owners, err := store.Owners(t.Context())
	if err != nil || owners.Held != 1500 || len(owners.All) != 1 || owners.All[0].Instance != "one/a" {
		t.Fatalf("got %+v, %v", owners, err)
	}
	if one := owners.All[0]; one.Leases < 100 || one.Leases > 1500 || time.Until(one.Until) < 0 {
		t.Errorf("got %+v", one)
	}
	// An expired lease counts for no owner.
	for id := range client.HGetAll(t.Context(), "msghandler:{00}:orders:leases").Val() {
		client.ZAddXX(t.Context(), "msghandler:{00}:orders:pending", redis.Z{Score: 1, Member: id})
	}
	if owners, err := store.Owners(t.Context()); err != nil || owners.Held != 1500 || len(owners.All) != 0 {
		t.Errorf("all leases have ended, and got %+v, %v", owners, err)
	}
}

// TestBacklogIsWhatWaitsForUs leaves out young messages and messages that are not due: delayed or leased.
func TestBacklogIsWhatWaitsForUs(t *testing.T) {
	t.Parallel()
	store, _, _ := fresh(t, redisstore.Config{})
	messages, names := numbered(10, 1)
	create(t, store, messages...)
	claims := submit(t, store, names...)
	settle(t, store, halfmsg.EventCommitted, time.Minute, claims[:3]...)
	settle(t, store, halfmsg.EventCommitted, 0, claims[3:]...)
	count := func(age time.Duration) int64 {
		t.Helper()
		n, err := store.Backlog(t.Context(), age)
		must.Succeed(t, err)
		return n
	}
	if n := count(time.Hour); n != 0 {
		t.Errorf("%d are an hour old", n)
	}
	if n := count(0); n != 7 {
		t.Errorf("%d wait, and 7 are due", n)
	}
	if claims, err := store.ClaimSendable(t.Context(), 4, time.Minute); err != nil || len(claims) != 4 || count(0) != 3 {
		t.Errorf("%d wait when %d are held: %v", count(0), len(claims), err)
	}
}

// TestLargeBodiesDelayNoOtherProducer has bodies of one producer that fill a whole claim, and small bodies of
// other producers that have been due longer.
func TestLargeBodiesDelayNoOtherProducer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what                    string
		producers, each         int
		large, bytesOfALargeOne int
	}{
		{"few small ones", 12, 1, 40, 1 << 20},
		{"as many small ones", 7, 5, 5, 8 << 20},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			store, _, _ := fresh(t, redisstore.Config{Shards: 1})
			for i := range test.producers {
				commitAll(t, store, fmt.Sprint("small-", i), test.each, 10)
			}
			commitAll(t, store, "large", test.large, test.bytesOfALargeOne)
			claims, err := store.ClaimSendable(t.Context(), test.producers*test.each+test.large, time.Minute)
			must.Succeed(t, err)
			got := map[string]int{}
			for _, claim := range claims {
				got[claim.Producer]++
			}
			if got["large"] == 0 || got["large"] == test.large {
				t.Fatalf("%d large messages were claimed, which do not fill a claim", got["large"])
			}
			for i := range test.producers {
				if name := fmt.Sprint("small-", i); got[name] != test.each {
					t.Errorf("%d messages of %s, which were due first, and %d large ones", got[name], name, got["large"])
				}
			}
		})
	}
}

// commitAll makes n messages of a producer SENDABLE.
func commitAll(t *testing.T, store *redisstore.Store, producer string, n, size int) {
	t.Helper()
	messages, names := numbered(n, size)
	for i := range messages {
		messages[i].Producer, names[i].Producer = producer, producer
	}
	for some := range slices.Chunk(messages, max(1, 8<<20/size)) {
		create(t, store, some...)
	}
	for some := range slices.Chunk(names, max(1, 8<<20/size)) {
		settle(t, store, halfmsg.EventCommitted, 0, submit(t, store, some...)...)
	}
}
