package redis_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/dev/bench/order"
	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// kept is an archive for tests.
var kept = redisstore.Archive{Retention: time.Hour, MaxMessages: 1000, MaxBody: 1000}

// archiving is a store with an archive, and how to move its clock; nil where the clock is the server's own.
type archiving struct {
	store   *redisstore.Store
	client  redis.UniversalClient
	advance func(time.Duration)
	// real says that the store is on a real Redis, ordered that its messages are paged.
	real, ordered bool
}

// onEach runs a test on an embedded Redis, on a real one with paged and with indexed messages.
func onEach(t *testing.T, archive redisstore.Archive, test func(t *testing.T, a archiving)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		server := miniredis.RunT(t)
		now := time.UnixMilli(1_700_000_000_000)
		server.SetTime(now)
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		store := open(t, redisstore.Config{URL: "redis://" + server.Addr(), Shards: 3, Archive: archive})
		test(t, archiving{store: store, client: client, advance: func(d time.Duration) {
			now = now.Add(d)
			server.SetTime(now)
			server.FastForward(d)
		}})
	})
	for _, indexed := range []bool{false, true} {
		t.Run(fmt.Sprint("redis indexed ", indexed), func(t *testing.T) {
			t.Parallel()
			store, client, _ := fresh(t, storing(indexed, redisstore.Config{Archive: archive}))
			test(t, archiving{store: store, client: client, real: true, ordered: !indexed})
		})
	}
}

// storing has new messages stored in the indexes at once, or in pages as always.
func storing(indexed bool, c redisstore.Config) redisstore.Config {
	if indexed {
		return redisstore.Indexed(c)
	}
	return c
}

// onCluster runs a test on a Cluster.
func onCluster(t *testing.T, test func(t *testing.T, a archiving)) {
	t.Helper()
	addrs := servers.RedisCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = client.Close() })
	store := open(t, redisstore.Config{URL: "redis://" + strings.Join(addrs, ","), Prefix: "test", Archive: kept})
	test(t, archiving{store: store, client: client})
}

// archived lists the whole history.
func archived(t *testing.T, store *redisstore.Store, query halfmsg.FinishedQuery) (all []halfmsg.Finished) {
	t.Helper()
	if query.Limit == 0 {
		query.Limit = 100
	}
	for {
		page, err := store.ListFinished(t.Context(), query)
		must.Succeed(t, err)
		all = append(all, page.Messages...)
		if query.Cursor = page.Next; query.Cursor == "" {
			return all
		}
	}
}

func ids(messages []halfmsg.Finished) (out string) {
	for _, m := range messages {
		out += m.ID + ":" + string(m.Ended) + " "
	}
	return strings.TrimSpace(out)
}

// toDone brings messages to DONE.
func toDone(t *testing.T, store *redisstore.Store, messages ...halfmsg.Message) {
	t.Helper()
	create(t, store, messages...)
	names := make([]halfmsg.Name, len(messages))
	for i := range messages {
		names[i] = messages[i].Name
	}
	finish(t, store, names) // with fingerprints, so that paged messages stay paged
}

func TestArchiveHoldsWhatEnded(t *testing.T) {
	t.Parallel()
	onEach(t, kept, archiveHoldsWhatEnded)
}

func archiveHoldsWhatEnded(t *testing.T, a archiving) {
	t.Helper()
	done, rolled, dropped, marked, dead := half("done"), half("rolled"), half("dropped"), half("marked"), half("dead")
	done.Headers = map[string]string{"tenant": "7"}
	done.Body = []byte(strings.Repeat("packs well ", 50))
	toDone(t, a.store, done)
	create(t, a.store, rolled, dropped, marked)
	a.store.Rollback(t.Context(), []halfmsg.Name{rolled.Name})
	a.store.Discard(t.Context(), []halfmsg.Name{dropped.Name}, halfmsg.None)
	claims := submit(t, a.store, marked.Name)
	settle(t, a.store, halfmsg.EventCommitted, time.Minute, claims...)
	settle(t, a.store, halfmsg.EventAckedMarked, time.Minute, claims...)
	settle(t, a.store, halfmsg.EventMarkerDeleted, 0, claims...)
	word(t, a.store, halfmsg.EventAcked, 0, claims...) // as after an answer that was lost: no second entry
	a.store.Rollback(t.Context(), []halfmsg.Name{rolled.Name})
	create(t, a.store, half("waits"), dead)
	claims = submit(t, a.store, dead.Name)
	settle(t, a.store, halfmsg.EventCommitted, time.Minute, claims...)
	settle(t, a.store, halfmsg.EventExhausted, 0, claims...)
	a.store.Discard(t.Context(), []halfmsg.Name{dead.Name}, halfmsg.Dead)

	if all := archived(t, a.store, halfmsg.FinishedQuery{Limit: 1}); len(all) != 5 {
		t.Fatalf("archived: %s", ids(all))
	}
	for id, want := range map[string]halfmsg.Ending{
		"done": halfmsg.EndedDone, "rolled": halfmsg.EndedRolledBack, "dropped": halfmsg.EndedDiscarded,
		"marked": halfmsg.EndedDone, "dead": halfmsg.EndedDiscarded,
	} {
		f, err := a.store.GetFinished(t.Context(), halfmsg.Name{Producer: "orders", ID: id}, "")
		if err != nil || f.Ended != want || f.Damaged != nil || f.CreatedAt.IsZero() || f.At.Before(f.CreatedAt) {
			t.Errorf("%s: %+v, %v", id, f, err)
		}
		if committed := id == "done" || id == "marked" || id == "dead"; committed != f.Replayable() ||
			committed != (f.Copies == 1) || committed == f.CommittedAt.IsZero() {
			t.Errorf("%s: %+v", id, f)
		}
	}
	f, err := a.store.GetFinished(t.Context(), done.Name, "")
	if err != nil || string(f.Body) != string(done.Body) || f.Exchange != "orders" || f.RoutingKey != "order.paid" ||
		f.Headers["tenant"] != "7" || f.Fingerprint != done.Digest() {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestArchiveIsFiltered(t *testing.T) {
	t.Parallel()
	onEach(t, kept, func(t *testing.T, a archiving) {
		for i := range 30 {
			m := half(fmt.Sprint(i))
			if i%10 == 0 {
				m.Exchange, m.Headers = "bills", map[string]string{"tenant": fmt.Sprint(i)}
			}
			toDone(t, a.store, m)
		}
		for _, c := range []struct {
			query halfmsg.FinishedQuery
			want  string
		}{
			{halfmsg.FinishedQuery{Exchange: "bills"}, "20:done 10:done 0:done"},
			{halfmsg.FinishedQuery{Exchange: "bills", Limit: 2}, "20:done 10:done 0:done"},
			{halfmsg.FinishedQuery{HeaderName: "tenant", HeaderValue: "10"}, "10:done"},
			{halfmsg.FinishedQuery{ID: "7"}, "7:done"},
			{halfmsg.FinishedQuery{Producer: "nobody"}, ""},
			{halfmsg.FinishedQuery{Ended: halfmsg.EndedRolledBack}, ""},
			{halfmsg.FinishedQuery{Until: time.UnixMilli(1_600_000_000_000)}, ""},
		} {
			all := archived(t, a.store, c.query)
			if len(c.want) > 0 && len(strings.Fields(c.want)) != len(all) || len(c.want) == 0 && len(all) > 0 {
				t.Errorf("%+v: %s", c.query, ids(all))
			}
			if a.ordered && ids(all) != c.want {
				t.Errorf("%+v: %s", c.query, ids(all))
			}
			for i := 1; i < len(all); i++ {
				if all[i].At.After(all[i-1].At) {
					t.Errorf("%s is newer than the message before", all[i].Name)
				}
			}
		}
		if all := archived(t, a.store, halfmsg.FinishedQuery{Limit: 7}); len(all) != 30 {
			t.Errorf("pages of 7 have %d messages", len(all))
		}
	})
}

// TestArchiveIsTrimmed shows both bounds: by number with each message, and by age when no message ends any more.
func TestArchiveIsTrimmed(t *testing.T) {
	t.Parallel()
	few := redisstore.Archive{Retention: time.Hour, MaxMessages: 30, MaxBody: 1000}
	server := miniredis.RunT(t)
	now := time.UnixMilli(1_700_000_000_000)
	server.SetTime(now)
	store := open(t, redisstore.Config{URL: "redis://" + server.Addr(), Archive: few})
	for i := range 50 {
		toDone(t, store, half(fmt.Sprint(i)))
		if stat, err := store.Archive(t.Context()); err != nil || stat.Messages > 30 {
			t.Fatalf("%+v, %v", stat, err)
		}
		server.SetTime(now.Add(time.Duration(i) * time.Minute))
	}
	if all := archived(t, store, halfmsg.FinishedQuery{}); len(all) != 30 || all[0].ID != "49" {
		t.Fatalf("%d messages: %s", len(all), ids(all))
	}
	server.SetTime(now.Add(100 * time.Minute)) // the messages from minute 40 on are an hour old at most
	stat, err := store.Archive(t.Context())
	if all := archived(t, store, halfmsg.FinishedQuery{}); err != nil || len(all) != 9 || stat.Messages != 9 {
		t.Fatalf("%d messages, %+v, %v: %s", len(all), stat, err, ids(all))
	}
	server.FastForward(2 * time.Hour) // without any coordinator
	if keys := server.Keys(); strings.Contains(strings.Join(keys, " "), "archive") {
		t.Errorf("keys %v", keys)
	}
}

// TestArchiveOfRealRedisIsBounded counts in real nodes of a stream, which are trimmed as a whole.
func TestArchiveOfRealRedisIsBounded(t *testing.T) {
	t.Parallel()
	few := redisstore.Archive{Retention: time.Hour, MaxMessages: 100, MaxBody: 1000}
	store, client, _ := fresh(t, redisstore.Config{Archive: few})
	for range 5 {
		messages := make([]halfmsg.Message, 100)
		for i := range messages {
			messages[i] = half(fmt.Sprint(prefixes.Add(1)))
		}
		toDone(t, store, messages...)
		if n := client.XLen(t.Context(), "msghandler:{00}:archive").Val(); n < 100 || n > 200 {
			t.Fatalf("%d entries", n)
		}
	}
	if more, err := store.TrimArchive(t.Context()); err != nil || !more {
		t.Fatal(more, err)
	}
	if n := client.XLen(t.Context(), "msghandler:{00}:archive").Val(); n != 100 {
		t.Errorf("%d entries", n)
	}
}

// TestFullRedisFinishesWithoutArchive shows that the archive never takes memory that messages need.
func TestFullRedisFinishesWithoutArchive(t *testing.T) {
	t.Parallel()
	for _, indexed := range []bool{false, true} {
		store, client, _ := fresh(t, storing(indexed, redisstore.Config{Archive: kept}))
		create(t, store, half("1"), half("2"), half("before"))
		store.Rollback(t.Context(), []halfmsg.Name{half("before").Name})
		claims := submit(t, store, half("1").Name)
		settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
		client.ConfigSet(t.Context(), "maxmemory", "100")
		if stat, err := store.Archive(t.Context()); err != nil || stat.Messages != 0 {
			t.Errorf("indexed %t: the archive does not give way: %+v, %v", indexed, stat, err)
		}
		settle(t, store, halfmsg.EventAcked, 0, claims...)
		stat, err := store.Archive(t.Context())
		if err != nil || stat.Dropped != 1 || stat.Messages != 0 {
			t.Errorf("indexed %t: %+v, %v", indexed, stat, err)
		}
		if r, err := store.Get(t.Context(), half("1").Name); err != nil || r.State != halfmsg.Done {
			t.Errorf("indexed %t: %v, %v", indexed, r.State, err)
		}
		client.ConfigSet(t.Context(), "maxmemory", "0")
		if _, err := store.TrimArchive(t.Context()); err != nil {
			t.Error(err)
		}
		store.Rollback(t.Context(), []halfmsg.Name{half("2").Name})
		if stat, err := store.Archive(t.Context()); err != nil || stat.Dropped != 1 || stat.Messages != 1 {
			t.Errorf("indexed %t: %+v, %v", indexed, stat, err)
		}
	}
}

// TestDamagedArchiveStopsNoMessage has a key of another type where the archive should be, and where a record was.
func TestDamagedArchiveStopsNoMessage(t *testing.T) {
	t.Parallel()
	onEach(t, kept, func(t *testing.T, a archiving) {
		if !a.real {
			return // the key of one shard is damaged
		}
		a.client.Set(t.Context(), "msghandler:{00}:archive", "something else", 0)
		toDone(t, a.store, half("1"))
		if r, err := a.store.Get(t.Context(), half("1").Name); err != nil || r.State != halfmsg.Done {
			t.Errorf("%v, %v", r.State, err)
		}
		a.client.Del(t.Context(), "msghandler:{00}:archive")
		a.client.XAdd(t.Context(), &redis.XAddArgs{ // a clock that went back
			Stream: "msghandler:{00}:archive", ID: "9999999999999-7", Values: []string{"foreign", "entry"},
		})
		toDone(t, a.store, half("2"))
		f, err := a.store.GetFinished(t.Context(), half("2").Name, "")
		if err != nil || string(f.Body) != "body of 2" {
			t.Errorf("%+v, %v", f, err)
		}
	})
}

func TestLongBodyIsNotArchived(t *testing.T) {
	t.Parallel()
	onEach(t, redisstore.Archive{Retention: time.Hour, MaxMessages: 10, MaxBody: 10}, func(t *testing.T, a archiving) {
		m := half("1")
		m.Body = []byte("eleven long")
		toDone(t, a.store, m)
		f, err := a.store.GetFinished(t.Context(), m.Name, "")
		if err != nil || !f.BodyLeftOut || len(f.Body) > 0 || f.Exchange != "orders" || f.Replayable() {
			t.Errorf("%+v, %v", f, err)
		}
	})
}

// claimOne claims the only message that is due to be sent.
func claimOne(t *testing.T, store *redisstore.Store) halfmsg.Claim {
	t.Helper()
	claims, err := store.ClaimSendable(t.Context(), 10, time.Minute)
	if err != nil || len(claims) != 1 {
		t.Fatalf("%d claims, %v", len(claims), err)
	}
	return claims[0]
}

func TestReplayIsPublishedAgain(t *testing.T) {
	t.Parallel()
	onEach(t, kept, replayIsPublishedAgain)
}

func TestArchiveOnCluster(t *testing.T) {
	t.Parallel()
	onCluster(t, func(t *testing.T, a archiving) {
		replayIsPublishedAgain(t, a)
		for _, tag := range redisstore.Tags(16) {
			a.client.Del(t.Context(), fmt.Sprintf("test:{%s}:archive", tag))
		}
		archiveHoldsWhatEnded(t, a)
	})
}

func replayIsPublishedAgain(t *testing.T, a archiving) {
	t.Helper()
	m := half("1")
	m.Body = []byte(strings.Repeat("packs well ", 50))
	toDone(t, a.store, m)
	how := halfmsg.ReplayHow{By: "ann", Reason: "lost effect"}
	replay := func(suffix string) halfmsg.Result {
		return a.store.Replay(t.Context(), []halfmsg.Replay{{Name: m.Name, Suffix: suffix}}, how)[0]
	}
	if a.advance != nil {
		a.advance(time.Second) // no message ends, is replayed and ends again within a millisecond
	}
	first := archived(t, a.store, halfmsg.FinishedQuery{ID: "1"})[0].Entry
	dry := a.store.Replay(t.Context(), []halfmsg.Replay{{Name: m.Name}}, halfmsg.ReplayHow{DryRun: true})[0]
	if dry.Err != nil || dry.State != halfmsg.Sendable {
		t.Fatal(dry)
	}
	if claims, err := a.store.ClaimSendable(t.Context(), 10, time.Minute); err != nil || len(claims) > 0 {
		t.Fatalf("a dry run: %+v, %v", claims, err)
	}
	if r := replay(""); r.Err != nil || r.State != halfmsg.Sendable {
		t.Fatal(r)
	}
	if r := replay(""); !errors.Is(r.Err, halfmsg.ErrIllegal) || r.State != halfmsg.Sendable {
		t.Errorf("the replay of an unfinished message: %v", r)
	}
	if r, err := a.store.Get(t.Context(), m.Name); err != nil || len(r.Timeline) != 1 ||
		r.Timeline[0].What != "replay" || r.Timeline[0].By != "ann" || r.Timeline[0].Cause != "lost effect" {
		t.Errorf("%+v, %v", r.Timeline, err)
	}
	claim := claimOne(t, a.store)
	if claim.Name != m.Name || string(claim.Body) != string(m.Body) || claim.Copies != 1 || claim.Digest() != m.Digest() {
		t.Errorf("%+v", claim)
	}
	settle(t, a.store, halfmsg.EventAcked, 0, claim)
	if all := archived(t, a.store, halfmsg.FinishedQuery{ID: "1"}); len(all) != 2 || all[0].Copies != 2 {
		t.Errorf("%+v", all)
	}
	again := a.store.Replay(t.Context(), []halfmsg.Replay{{Name: m.Name, Entry: first}}, halfmsg.ReplayHow{})[0]
	if !errors.Is(again.Err, halfmsg.ErrIllegal) || again.State != halfmsg.Done {
		t.Errorf("the same replay again: %v", again)
	}

	if r := replay("-again"); r.Err != nil || r.State != halfmsg.Sendable {
		t.Fatal(r)
	}
	claim = claimOne(t, a.store)
	if claim.ID != "1-again" || string(claim.Body) != string(m.Body) || claim.Copies != 0 {
		t.Errorf("%+v", claim)
	}
	settle(t, a.store, halfmsg.EventAcked, 0, claim)
	for i, r := range a.store.Create(t.Context(), []halfmsg.Message{m}) {
		if r.Err != nil || r.State != halfmsg.Done {
			t.Errorf("message %d sent again: %v", i, r)
		}
	}
}

// TestReplayIsRefused has messages that must not be published: P2, No phantom publish.
func TestReplayIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, kept, func(t *testing.T, a archiving) {
		rolled, dropped, reused := half("rolled"), half("dropped"), half("reused")
		create(t, a.store, rolled, dropped)
		toDone(t, a.store, reused)
		first := archived(t, a.store, halfmsg.FinishedQuery{ID: "reused"})[0].Entry
		a.store.Rollback(t.Context(), []halfmsg.Name{rolled.Name})
		a.store.Discard(t.Context(), []halfmsg.Name{dropped.Name}, halfmsg.None)
		other := reused
		other.Body = []byte("other content, when the receipt had expired")
		if a.advance == nil {
			a.client.Del(t.Context(), "msghandler:{00}:orders:m:reused")
		} else {
			a.advance(retention + time.Second)
		}
		toDone(t, a.store, other)
		for _, c := range []struct {
			replay halfmsg.Replay
			want   error
		}{
			{halfmsg.Replay{Name: rolled.Name}, halfmsg.ErrIllegal},
			{halfmsg.Replay{Name: rolled.Name, Suffix: "-2"}, halfmsg.ErrIllegal},
			{halfmsg.Replay{Name: dropped.Name}, halfmsg.ErrIllegal},
			{halfmsg.Replay{Name: half("unknown").Name}, halfmsg.ErrNotFound},
			{halfmsg.Replay{Name: reused.Name, Entry: "1-1"}, halfmsg.ErrNotFound},
			{halfmsg.Replay{Name: reused.Name, Entry: first}, halfmsg.ErrExists},
		} {
			r := a.store.Replay(t.Context(), []halfmsg.Replay{c.replay}, halfmsg.ReplayHow{})[0]
			if !errors.Is(r.Err, c.want) {
				t.Errorf("%+v: %v, want %v", c.replay, r, c.want)
			}
		}
		if claims, err := a.store.ClaimSendable(t.Context(), 10, time.Minute); err != nil || len(claims) > 0 {
			t.Errorf("%+v, %v", claims, err)
		}
	})
}

// TestHistoryOfReceipts has no archive: names, ends and times are all that stays.
func TestHistoryOfReceipts(t *testing.T) {
	t.Parallel()
	onEach(t, redisstore.Archive{}, func(t *testing.T, a archiving) {
		var messages []halfmsg.Message
		for i := range 20 {
			messages = append(messages, half(fmt.Sprint(i)))
		}
		toDone(t, a.store, messages...)
		create(t, a.store, half("rolled"), half("waits"))
		a.store.Rollback(t.Context(), []halfmsg.Name{half("rolled").Name})
		for _, c := range []struct {
			query halfmsg.FinishedQuery
			want  int
		}{
			{halfmsg.FinishedQuery{}, 21},
			{halfmsg.FinishedQuery{Producer: "orders"}, 21},
			{halfmsg.FinishedQuery{Producer: "order"}, 0},
			{halfmsg.FinishedQuery{ID: "7"}, 1},
			{halfmsg.FinishedQuery{Producer: "orders", ID: "7"}, 1},
			{halfmsg.FinishedQuery{Producer: "orders", ID: "waits"}, 0},
			{halfmsg.FinishedQuery{Ended: halfmsg.EndedRolledBack}, 1},
			{halfmsg.FinishedQuery{Until: time.UnixMilli(1_600_000_000_000)}, 0},
		} {
			all := archived(t, a.store, c.query)
			if len(all) != c.want {
				t.Errorf("%+v: %s", c.query, ids(all))
			}
			for _, f := range all {
				if f.At.IsZero() || f.Entry != "" || f.Replayable() {
					t.Errorf("%+v", f)
				}
			}
		}
		if stat, err := a.store.Archive(t.Context()); err != nil || stat.Messages != 0 {
			t.Errorf("%+v, %v", stat, err)
		}
	})
}

// TestAnArchivedMessageIsSmall measures what an entry costs in memory: discarded messages leave nothing else.
func TestAnArchivedMessageIsSmall(t *testing.T) {
	t.Parallel()
	const n, size = 2000, 1024
	orders := order.New(size)
	for name, test := range map[string]struct {
		body func(i int) []byte
		most int // bytes
	}{
		"order": {func(i int) []byte { return orders.Of(uint64(i)) }, size * 115 / 100},
		"random": {func(int) []byte {
			body := make([]byte, size)
			_, _ = rand.Read(body)
			return body
		}, size * 160 / 100},
	} {
		store, client, _ := fresh(t, redisstore.Config{
			Archive: redisstore.Archive{Retention: time.Hour, MaxMessages: 2 * n, MaxBody: 2 * size},
		})
		create(t, store, half("first"))
		before := datasetOf(t, client)
		messages, names := make([]halfmsg.Message, n), make([]halfmsg.Name, n)
		for i := range messages {
			m := half(fmt.Sprintf("order-%08d", i))
			m.Body, m.CallbackTarget, m.ConfirmAfter = test.body(i), "orders.internal:9000", time.Hour
			messages[i], names[i] = m, m.Name
		}
		create(t, store, messages...)
		store.Discard(t.Context(), names, halfmsg.None)
		each := (datasetOf(t, client) - before) / n
		t.Logf("%s: %d bytes", name, each)
		if each > test.most {
			t.Errorf("%s: an archived message of %d bytes takes %d, want at most %d", name, size, each, test.most)
		}
	}
}
