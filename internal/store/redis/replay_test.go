package redis_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/servers"
)

// TestMarkedMessageIsReplayed has a message that was archived before its marker was deleted: delete_business.when
// after_ack.
func TestMarkedMessageIsReplayed(t *testing.T) {
	t.Parallel()
	onEach(t, kept, func(t *testing.T, a archiving) {
		m := half("marked")
		create(t, a.store, m)
		claims := submit(t, a.store, m.Name)
		settle(t, a.store, halfmsg.EventCommitted, time.Minute, claims...)
		settle(t, a.store, halfmsg.EventAckedMarked, time.Minute, claims...)
		if a.advance != nil {
			a.advance(time.Second)
		}
		settle(t, a.store, halfmsg.EventMarkerDeleted, 0, claims...)
		replay := halfmsg.Replay{Name: m.Name}
		if r := a.store.Replay(t.Context(), []halfmsg.Replay{replay}, halfmsg.ReplayHow{})[0]; r.Err != nil {
			t.Fatal(r)
		}
	})
}

// TestReplayIsPublicationOfItsOwn looks at what tells a replay from its first publication: the mark, and a new time.
func TestReplayIsPublicationOfItsOwn(t *testing.T) {
	t.Parallel()
	onEach(t, kept, func(t *testing.T, a archiving) {
		last := time.Time{}
		toDone(t, a.store, half("1"))
		for range 2 {
			if a.advance != nil {
				a.advance(time.Second)
			}
			// Redis dates a replay to the millisecond.
			servers.Eventually(t, time.Minute, "a later millisecond", func() bool { return time.Since(last) > time.Millisecond })
			how := halfmsg.ReplayHow{}
			if r := a.store.Replay(t.Context(), []halfmsg.Replay{{Name: half("1").Name}}, how)[0]; r.Err != nil {
				t.Fatal(r)
			}
			claims, err := a.store.ClaimSendable(t.Context(), 1, time.Minute)
			if err != nil || len(claims) != 1 || !claims[0].Replayed || !claims[0].CreatedAt.After(last) {
				t.Fatalf("claimed %+v, %v", claims, err)
			}
			last = claims[0].CreatedAt
			settle(t, a.store, halfmsg.EventAcked, 0, claims...)
		}
	})
}

// TestReplayToUnknownBrokerIsRefused: the copy would wait for ever for a broker that left the configuration.
func TestReplayToUnknownBrokerIsRefused(t *testing.T) {
	t.Parallel()
	redis := servers.Redis(t)
	m := named("1")
	with := func(broker string) *redisstore.Store {
		return open(t, redisstore.Config{URL: redis.URL(), Prefix: "replays", Archive: kept, Brokers: []string{broker}})
	}
	toDone(t, with("events"), m)
	gone := with("other")
	for _, dry := range []bool{true, false} {
		r := gone.Replay(t.Context(), []halfmsg.Replay{{Name: m.Name}}, halfmsg.ReplayHow{DryRun: dry})[0]
		if !errors.Is(r.Err, halfmsg.ErrNoBroker) {
			t.Errorf("dry run %t: %+v", dry, r)
		}
	}
}

// TestForbiddenReplayStoresNothing refuses the exchange of an archived message.
func TestForbiddenReplayStoresNothing(t *testing.T) {
	t.Parallel()
	onEach(t, kept, func(t *testing.T, a archiving) {
		m, forbidden := half("1"), errors.New("forbidden")
		toDone(t, a.store, m)
		for _, dry := range []bool{true, false} {
			r := a.store.Replay(t.Context(), []halfmsg.Replay{{Name: m.Name}}, halfmsg.ReplayHow{
				DryRun: dry, MayPublish: func(found *halfmsg.Message) error {
					if found.Exchange != m.Exchange || found.Producer != m.Producer {
						t.Errorf("the store asks about %+v", found)
					}
					return forbidden
				},
			})[0]
			if !errors.Is(r.Err, forbidden) {
				t.Errorf("dry run %t: %+v", dry, r)
			}
		}
		if claims, err := a.store.ClaimSendable(t.Context(), 10, time.Minute); err != nil || len(claims) != 0 {
			t.Errorf("claimed %v, %v", claims, err)
		}
	})
}

// TestDamagedRestStopsNoMessage has a key of another type in place of what was left of an acknowledged message.
func TestDamagedRestStopsNoMessage(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Archive: kept})
	m := half("1")
	create(t, store, m)
	claims := submit(t, store, m.Name)
	settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
	settle(t, store, halfmsg.EventAckedMarked, time.Minute, claims...)
	const key = "msghandler:{00}:orders:m:1"
	client.Del(t.Context(), key)
	client.LPush(t.Context(), key, "something else")
	r := store.Settle(t.Context(), []halfmsg.Settlement{{
		Name: m.Name, Token: claims[0].Token, Event: halfmsg.EventMarkerDeleted, Fingerprint: m.Digest(),
	}})[0]
	if r.Err != nil || r.State != halfmsg.Done {
		t.Error(r)
	}
}

// TestHistoryBeforeTheEpoch has times that no id of an entry can have.
func TestHistoryBeforeTheEpoch(t *testing.T) {
	t.Parallel()
	onEach(t, kept, func(t *testing.T, a archiving) {
		toDone(t, a.store, half("1"))
		for _, at := range []time.Time{time.UnixMilli(0), time.UnixMilli(-5)} {
			if all := archived(t, a.store, halfmsg.FinishedQuery{Since: at}); len(all) != 1 {
				t.Errorf("since %s: %s", at, ids(all))
			}
			if all := archived(t, a.store, halfmsg.FinishedQuery{Until: at}); len(all) != 0 {
				t.Errorf("until %s: %s", at, ids(all))
			}
		}
	})
}

// TestReplaySearchesTheArchiveOnce names messages whose receipts have expired. A search costs calls of a script for all
// entries.
func TestReplaySearchesTheArchiveOnce(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{Archive: kept})
	nodes := []*servers.RedisServer{server}
	var messages []halfmsg.Message
	var replays []halfmsg.Replay
	for i := range 50 {
		messages = append(messages, half(fmt.Sprint(i)))
		replays = append(replays, halfmsg.Replay{Name: messages[i].Name})
	}
	toDone(t, store, messages...)
	for _, m := range messages {
		client.Del(t.Context(), "msghandler:{00}:orders:m:"+m.ID)
	}
	replays = append(replays, halfmsg.Replay{Name: half("unknown").Name})
	before := scriptCalls(t, nodes)
	results := store.Replay(t.Context(), replays, halfmsg.ReplayHow{})
	for i, r := range results[:50] {
		if r.Err != nil || r.State != halfmsg.Sendable {
			t.Errorf("message %d: %v", i, r)
		}
	}
	if err := results[50].Err; !errors.Is(err, halfmsg.ErrNotFound) {
		t.Errorf("an unknown message: %v", err)
	}
	// One call asks for the receipt of each message.
	if calls := scriptCalls(t, nodes) - before; calls > len(replays)+10 {
		t.Errorf("%d calls of scripts for %d messages", calls, len(replays))
	}
}

func TestForgedCursorOfReceiptsIsRefused(t *testing.T) {
	t.Parallel()
	store, _, _ := fresh(t, redisstore.Config{})
	for _, cursor := range []string{"-1.0", "1.0", "x", "0"} {
		_, err := store.ListFinished(t.Context(), halfmsg.FinishedQuery{Cursor: cursor})
		if !errors.Is(err, redisstore.ErrCursor) {
			t.Errorf("%s: %v", cursor, err)
		}
	}
}

// TestHistoryOfLongBodiesReadsFew has bodies of which Redis should not hold twenty at once.
func TestHistoryOfLongBodiesReadsFew(t *testing.T) {
	t.Parallel()
	large := redisstore.Archive{Retention: time.Hour, MaxMessages: 100, MaxBody: 1 << 20}
	store, _, _ := fresh(t, redisstore.Config{Archive: large})
	for i := range 5 {
		m := half(fmt.Sprint(i))
		m.Body = make([]byte, 1<<20)
		_, _ = rand.Read(m.Body)
		toDone(t, store, m)
	}
	page, err := store.ListFinished(t.Context(), halfmsg.FinishedQuery{Scan: 1, Limit: 100})
	if err != nil || page.Looked > 1 || page.Next == "" {
		t.Errorf("%d looked at, next %q, %v", page.Looked, page.Next, err)
	}
	if all := archived(t, store, halfmsg.FinishedQuery{}); len(all) != 5 {
		t.Errorf("archived: %s", ids(all))
	}
}
