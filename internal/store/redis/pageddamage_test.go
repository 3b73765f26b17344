package redis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peers"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
)

// of gives a message to another producer.
func of(producer string, m halfmsg.Message) halfmsg.Message {
	m.Producer = producer
	return m
}

// embeddedStore is a store on a Redis whose clock and calls a test controls.
func embeddedStore(t *testing.T, config redisstore.Config) (*redisstore.Store, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	config.URL, config.Prefix = "redis://"+server.Addr(), "msghandler"
	return open(t, config), server
}

// TestMessageOlderThanCoordinatorsIsIntact: its page is due, and no loop has looked yet.
func TestMessageOlderThanCoordinatorsIsIntact(t *testing.T) {
	t.Parallel()
	log, logger := logged()
	store, redis := embeddedStore(t, redisstore.Config{})
	now := time.UnixMilli(1_800_000_000_000)
	redis.SetTime(now)
	create(t, store, later("1"))
	redis.SetTime(now.Add(time.Minute))
	next := open(t, redisstore.Config{URL: "redis://" + redis.Addr(), Prefix: "msghandler", Logger: logger})
	if repairs := sweep(t, next); repairs.Made > 0 {
		t.Errorf("%d repairs of whole records:\n%s", repairs.Made, log)
	}
}

// TestListIsWholeWithReusedId: the page of its first use still names it.
func TestListIsWholeWithReusedId(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	want := map[string]bool{"beside": true, "again": true}
	create(t, store, later("beside"), later("again"))
	store.Discard(t.Context(), []halfmsg.Name{later("again").Name}, halfmsg.None)
	pages := func() int64 { return client.ZCard(t.Context(), base+"pages").Val() }
	for i := 0; i < 30 || pages() < 2; i++ { // until the next page has some
		id := fmt.Sprint(i)
		create(t, store, later(id))
		want[id] = true
	}
	create(t, store, later("again"))
	query := halfmsg.Query{State: halfmsg.Pending, Limit: 1}
	seen := map[string]bool{}
	for {
		page, err := store.List(t.Context(), query)
		must.Succeed(t, err)
		for _, r := range page.Records {
			seen[r.ID] = true
		}
		if query.Cursor = page.Next; query.Cursor == "" {
			break
		}
	}
	if len(seen) != len(want) {
		t.Errorf("listed %d of %d", len(seen), len(want))
	}
}

// formsOf are the keys that hold messages of a state: the index, and the cells where messages are paged.
func formsOf(state string, indexed bool) []string {
	if indexed {
		return []string{state}
	}
	return []string{state, state + ":cells"}
}

// TestWrongTypedKeySpoilsOneProducer has producers share calls, as they do at a coordinator. Each of the
// cases is one producer's damage, and the other producer has to get its answers.
func TestWrongTypedKeySpoilsOneProducer(t *testing.T) {
	t.Parallel()
	a, b := of("a-poisoned", later("1")), later("1")
	names := []halfmsg.Name{a.Name, b.Name}
	for name, test := range map[string]struct {
		damaged func(indexed bool) []string
		call    func(t *testing.T, store *redisstore.Store, damage func()) error
	}{
		"create": {
			func(bool) []string { return []string{"pending"} },
			func(t *testing.T, store *redisstore.Store, damage func()) error {
				damage()
				return store.Create(t.Context(), []halfmsg.Message{a, b})[1].Err
			},
		},
		"rollback": {
			func(bool) []string { return []string{"pending"} },
			func(t *testing.T, store *redisstore.Store, damage func()) error {
				create(t, store, a, b)
				damage()
				return store.Rollback(t.Context(), names)[1].Err
			},
		},
		"submit": {
			func(indexed bool) []string { return formsOf("pending", indexed) },
			func(t *testing.T, store *redisstore.Store, damage func()) error {
				create(t, store, a, b)
				damage()
				return store.Submit(t.Context(), names, time.Minute)[1].Err
			},
		},
		"settle": {
			func(indexed bool) []string { return formsOf("sendable", indexed) },
			func(t *testing.T, store *redisstore.Store, damage func()) error {
				create(t, store, a, b)
				claims := submit(t, store, names...)
				damage()
				return word(t, store, halfmsg.EventCommitted, time.Minute, claims...)[1].Err
			},
		},
	} {
		for _, indexed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s indexed %t", name, indexed), func(t *testing.T) {
				t.Parallel()
				store, client, _ := fresh(t, storing(indexed, redisstore.Config{}))
				err := test.call(t, store, func() {
					for _, key := range test.damaged(indexed) {
						client.Set(t.Context(), "msghandler:{00}:a-poisoned:"+key, "x", 0)
					}
				})
				if err != nil {
					t.Errorf("the other producer gets %v", err)
				}
			})
		}
	}
}

// TestWrongTypedRecordSpoilsOneSubmit: the coordinator does not have the messages in memory.
func TestWrongTypedRecordSpoilsOneSubmit(t *testing.T) {
	t.Parallel()
	for _, indexed := range []bool{false, true} {
		t.Run(fmt.Sprint("indexed ", indexed), func(t *testing.T) {
			t.Parallel()
			store, client, server := fresh(t, storing(indexed, redisstore.Config{}))
			other := open(t, storing(indexed, redisstore.Config{URL: server.URL(), Prefix: "msghandler"}))
			create(t, store, later("a"), later("record"), later("z"))
			client.Del(t.Context(), base+"m:record")
			client.LPush(t.Context(), base+"m:record", "x")
			names := []halfmsg.Name{later("a").Name, later("record").Name, later("z").Name}
			for i, r := range other.Submit(t.Context(), names, time.Minute) {
				if i != 1 && r.Err != nil {
					t.Errorf("%s: %v", names[i], r.Err)
				}
			}
		})
	}
}

// TestWrongTypedPageStopsNothing has a damaged page that is due before the others.
func TestWrongTypedPageStopsNothing(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	client.Set(t.Context(), base+"page:1", "x", 0)
	client.ZAdd(t.Context(), base+"pages", redis.Z{Score: 1, Member: "1"})
	create(t, store, half("1")) // due at once
	claims, err := store.ClaimPending(t.Context(), map[string]int{"orders": 9}, time.Minute)
	if err != nil || len(claims) != 1 {
		t.Errorf("claimed %d messages, %v", len(claims), err)
	}
}

// TestWrongTypedIndexStopsNoSweep has one producer's damage, and another producer's message to repair.
func TestWrongTypedIndexStopsNoSweep(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	create(t, store, of("a-poisoned", later("1")), later("1"))
	client.Set(t.Context(), "msghandler:{00}:a-poisoned:pages", "x", 0)
	for range 20 {
		if _, _, err := store.Sweep(t.Context()); err != nil {
			t.Errorf("the sweeper: %v", err)
			break
		}
	}
}

// TestVerdictOfUnreadableCellStays: the key of the cell says the state, and the marker may be deleted by now.
func TestVerdictOfUnreadableCellStays(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	create(t, store, later("1"))
	settle(t, store, halfmsg.EventCommitted, time.Minute, submit(t, store, later("1").Name)...)
	client.HSet(t.Context(), base+"sendable:cells", "1", "nonsense")
	sweep(t, store)
	if r, err := store.Get(t.Context(), later("1").Name); err != nil || r.State != halfmsg.Sendable {
		t.Errorf("a committed message is %s, %v", r.State, err)
	}
}

// TestAPagedMessageInheritsNothing has a verdict and notes that a lost record of the same name has left, and a key of
// another type beside them.
func TestAPagedMessageInheritsNothing(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	create(t, store, later("1"))
	client.HSet(t.Context(), base+"verdicts", "1", "1")
	client.HSet(t.Context(), base+"x:1", "confirms", "5")
	client.Set(t.Context(), base+"leases", "of another type", 0)
	lapse(t, client)
	finishPages(t, store)
	if err := client.ZScore(t.Context(), base+"pending", "1").Err(); err != nil {
		t.Fatalf("the message is not indexed: %v", err)
	}
	if left := client.Exists(t.Context(), base+"verdicts", base+"x:1").Val(); left > 0 {
		t.Errorf("%d of verdict and notes are left", left)
	}
}

// TestLeasesOfAllProducersAreCounted: beyond the sample no owners are told, but all leases are counted.
func TestLeasesOfAllProducersAreCounted(t *testing.T) {
	t.Parallel()
	store, _, _ := fresh(t, redisstore.Config{})
	var messages []halfmsg.Message
	var names []halfmsg.Name
	for i := range 2000 {
		m := of(fmt.Sprint("producer-", i%5), later(fmt.Sprint(i)))
		messages, names = append(messages, m), append(names, m.Name)
	}
	create(t, store, messages...)
	submit(t, store, names...)
	owners, err := store.Owners(t.Context())
	if err != nil || owners.Held < 1800 || owners.Held > 2200 {
		t.Errorf("%d of 2000 leases are held, %v", owners.Held, err)
	}
}

// TestFullRedisStillTellsUncleanEnds: reports are small, and a full Redis must not hide the ends.
func TestFullRedisStillTellsUncleanEnds(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	pulse(t, store)
	report := fmt.Sprintf("%d\nrunning\n{}\n", time.Now().Add(-time.Minute).UnixMilli())
	client.HSet(t.Context(), "msghandler:{00}:coordinators", "killed/1", report)
	client.ConfigSet(t.Context(), "maxmemory", "1mb")
	ends, err := store.ShareReport(t.Context(), peers.Text{}, silence, true)
	if err != nil || len(ends) != 1 || !ends[0].Ended || !ends[0].Unreported {
		t.Errorf("told are %v, %v", ends, err)
	}
	client.ConfigSet(t.Context(), "maxmemory", "0")
	if again, err := store.ShareReport(t.Context(), peers.Text{}, silence, true); err != nil || len(again) != 1 ||
		!again[0].Unreported && len(ends) == 0 {
		t.Errorf("and the end is never reported: %+v, %v", again, err)
	}
}

// TestFinishingPagesListsBacklogOnce has one producer's pages fall due while the messages of many
// others wait, as after an outage of the broker.
func TestFinishingPagesListsBacklogOnce(t *testing.T) {
	t.Parallel()
	_, logger := logged()
	store, client, _ := fresh(t, redisstore.Config{Logger: logger})
	pipe := client.Pipeline()
	for n := range 200 {
		producer := fmt.Sprint("producer-", n)
		pipe.SAdd(t.Context(), "msghandler:{00}:producers", producer)
		for i := range 250 {
			pipe.ZAdd(t.Context(), "msghandler:{00}:"+producer+":sendable", redis.Z{Score: 1, Member: fmt.Sprint(i)})
		}
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent := func() (bytes int64) {
		for _, line := range strings.Split(client.Info(t.Context(), "stats").Val(), "\r\n") {
			if _, err := fmt.Sscanf(line, "total_net_output_bytes:%d", &bytes); err == nil {
				return bytes
			}
		}
		return 0
	}
	pass := func() int64 {
		t.Helper()
		before := sent()
		if _, err := store.ClaimSendable(t.Context(), 200, time.Minute); err != nil {
			t.Fatal(err)
		}
		return sent() - before
	}
	without := pass()
	var messages []halfmsg.Message
	for i := range 2000 {
		messages = append(messages, later(fmt.Sprint(i)))
	}
	create(t, store, messages...)
	lapse(t, client)
	if with := pass(); with > 3*without {
		t.Errorf("a pass that finishes 2000 paged messages reads %d KiB, and %d KiB without", with>>10, without>>10)
	}
}
