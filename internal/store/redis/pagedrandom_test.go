package redis_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// TestRandomMovesLoseNoMessage has three coordinators work on the same messages, while pages fall due at random. At any
// time each message has one state, and a cell has a page.
func TestRandomMovesLoseNoMessage(t *testing.T) {
	t.Parallel()
	first, client, server := fresh(t, redisstore.Config{})
	stores := []*redisstore.Store{first}
	for range 2 {
		stores = append(stores, open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"}))
	}
	var working sync.WaitGroup
	for n, store := range stores {
		working.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(n)))
			var owned []halfmsg.Claim
			for range 400 {
				owned = randomMove(t, random, store, stores[random.IntN(3)], owned)
				if random.IntN(20) == 0 {
					lapse(t, client)
				}
			}
		})
	}
	working.Wait()
	intact(t, client)
	lapse(t, client)
	finishPages(t, first)
	intact(t, client)
	if repairs := sweep(t, first); repairs.Made > 0 {
		t.Errorf("%d repairs", repairs.Made)
	}
}

// randomMove makes one move of a few messages, and returns what its store owns then. Moves may be refused.
func randomMove(
	t *testing.T, random *rand.Rand, store, other *redisstore.Store, owned []halfmsg.Claim,
) []halfmsg.Claim {
	var messages []halfmsg.Message
	var names []halfmsg.Name
	for range 1 + random.IntN(4) {
		m := later(fmt.Sprint(random.IntN(200)))
		messages, names = append(messages, m), append(names, m.Name)
	}
	switch random.IntN(8) {
	case 0, 1:
		other.Create(t.Context(), messages)
	case 2, 3:
		for _, r := range store.Submit(t.Context(), names, time.Minute) {
			if r.Claim != nil {
				owned = append(owned, *r.Claim)
			}
		}
	case 4:
		other.Rollback(t.Context(), names)
	case 5:
		other.SubmitTrusted(t.Context(), names, time.Minute)
	default:
		return settleRandom(t, random, store, owned)
	}
	return owned
}

func settleRandom(t *testing.T, random *rand.Rand, store *redisstore.Store, owned []halfmsg.Claim) []halfmsg.Claim {
	events := []halfmsg.Event{
		halfmsg.EventCommitted, halfmsg.EventCommitted, halfmsg.EventAcked, halfmsg.EventAcked,
		halfmsg.EventRolledBack, halfmsg.EventUnknown, halfmsg.EventReleased, halfmsg.EventRefused,
	}
	var settlements []halfmsg.Settlement
	for _, c := range owned {
		s := halfmsg.Settlement{
			Name: c.Name, Token: c.Token, Fingerprint: c.Fingerprint, Event: events[random.IntN(len(events))],
		}
		if s.Event == halfmsg.EventCommitted {
			s.Hold = time.Minute
		}
		settlements = append(settlements, s)
	}
	var kept []halfmsg.Claim
	for i, r := range store.Settle(t.Context(), settlements) {
		if settlements[i].Event == halfmsg.EventCommitted && r.Err == nil {
			kept = append(kept, owned[i])
		}
	}
	return kept
}

// intact checks that each unfinished message has one place, each place a record, and each cell a page.
func intact(t *testing.T, client *redis.Client) {
	t.Helper()
	ctx, places := t.Context(), map[string][]string{}
	inPages := map[string]bool{}
	for _, page := range client.ZRange(ctx, base+"pages", 0, -1).Val() {
		for _, id := range client.LRange(ctx, base+"page:"+page, 0, -1).Val() {
			inPages[id] = true
		}
	}
	for _, state := range halfmsg.Unfinished() {
		for id := range client.HGetAll(ctx, base+state.String()+":cells").Val() {
			places[id] = append(places[id], state.String()+":cells")
			if !inPages[id] {
				t.Errorf("%s has a cell and no page", id)
			}
		}
		for _, id := range client.ZRange(ctx, base+state.String(), 0, -1).Val() {
			places[id] = append(places[id], state.String())
		}
	}
	for _, key := range client.Keys(ctx, base+"m:*").Val() {
		id := strings.TrimPrefix(key, base+"m:")
		unfinished := strings.HasPrefix(client.GetRange(ctx, key, 0, 3).Val(), "half")
		if (len(places[id]) == 1) != unfinished {
			t.Errorf("%s is in %v, unfinished: %t", id, places[id], unfinished)
		}
		delete(places, id)
	}
	if len(places) > 0 {
		t.Errorf("places without records: %v", places)
	}
}
