package storekeys_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/storekeys"
)

const (
	prefix = "k"
	orders = prefix + ":{00}:orders:"
	lease  = 10 * time.Second
)

// world is a store on a miniredis whose clock stands still.
type world struct {
	t      *testing.T
	server *miniredis.Miniredis
	store  *redisstore.Store
	now    time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, server: miniredis.RunT(t), now: time.UnixMilli(1_800_000_000_000)}
	w.server.SetTime(w.now)
	var err error
	w.store, err = redisstore.New(t.Context(), redisstore.Config{
		URL: "redis://" + w.server.Addr(), Prefix: prefix, Shards: 1, Instance: "owner", Retention: time.Hour,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.store.Close() })
	return w
}

func named(id int) halfmsg.Name { return halfmsg.Name{Producer: "orders", ID: fmt.Sprint(id)} }

// settle claims a message, and stores an event of its owner.
func (w *world) settle(id int, s halfmsg.Settlement) {
	w.t.Helper()
	claim := w.store.Submit(w.t.Context(), []halfmsg.Name{named(id)}, lease)[0].Claim
	if claim == nil {
		w.t.Fatalf("message %d is not claimed", id)
	}
	s.Name, s.Token, s.Fingerprint = claim.Name, claim.Token, claim.Fingerprint
	if r := w.store.Settle(w.t.Context(), []halfmsg.Settlement{s})[0]; r.Err != nil {
		w.t.Fatal(r.Err)
	}
}

// fill stores five messages: pending in a page, claimed in a page, pending in the indexes, sendable, finished.
func (w *world) fill() {
	w.t.Helper()
	for id := 1; id <= 5; id++ {
		m := halfmsg.Message{Name: named(id), RoutingKey: "orders", Body: []byte("body"), ConfirmAfter: time.Minute}
		if r := w.store.Create(w.t.Context(), []halfmsg.Message{m})[0]; r.Err != nil {
			w.t.Fatal(r.Err)
		}
	}
	w.store.Submit(w.t.Context(), []halfmsg.Name{named(2)}, lease)
	w.settle(3, halfmsg.Settlement{Event: halfmsg.EventUnknown, After: time.Minute, Cause: "no answer"})
	w.settle(4, halfmsg.Settlement{Event: halfmsg.EventCommitted, After: time.Minute})
	w.settle(5, halfmsg.Settlement{Event: halfmsg.EventRolledBack})
}

func TestKeysOfTheStoreFitTogether(t *testing.T) {
	w := newWorld(t)
	w.fill()
	keys := storekeys.Read(w.server, prefix)
	for _, wrong := range keys.Check(w.now) {
		t.Error(wrong)
	}
	states := map[int]halfmsg.State{
		1: halfmsg.Pending, 2: halfmsg.Pending, 3: halfmsg.Pending, 4: halfmsg.Sendable, 5: halfmsg.RolledBack,
	}
	for id, want := range states {
		if got := keys.Messages[named(id).String()].State(); got != want {
			t.Errorf("message %d is %v, want %v", id, got, want)
		}
	}
	if stats, err := w.store.Stats(t.Context()); err != nil || len(keys.CheckStats(stats)) > 0 {
		t.Errorf("the counts are wrong: %v %v", keys.CheckStats(stats), err)
	}
}

// plants are damages of the keys, each with the words that the check must find for it.
var plants = map[string]struct {
	damage func(w *world)
	found  string
}{
	"a record without index": {
		func(w *world) {
			w.server.ZRem(orders+"pending", "3")
			w.server.ZRem(orders+"pending:created", "3")
		}, "orders/3: it has a record, and neither a cell nor an index entry",
	},
	"an index entry without record": {
		func(w *world) { w.server.Del(orders + "m:4") }, "orders/4: it has no record, and an index entry",
	},
	"a TTL on a pending record": {
		func(w *world) { w.server.SetTTL(orders+"m:3", time.Hour) }, "orders/3: its record expires",
	},
	"a TTL on a shared key": {
		func(w *world) { w.server.SetTTL(orders+"pending", time.Hour) }, "it holds unfinished messages, and expires",
	},
	"a receipt without TTL": {
		func(w *world) { w.server.SetTTL(orders+"m:5", 0) }, "orders/5: its receipt does not expire",
	},
	"a message in two indexes": {
		func(w *world) { w.add("dead", 3) }, "orders/3: it stands in 2 places",
	},
	"a cell beside an index": {
		func(w *world) { w.add("sendable", 1) }, "orders/1: it stands in 2 places",
	},
	"a cell that its page forgot": {
		func(w *world) { w.server.Del(orders + "pages") }, "orders/1: its pending cell: its page has no due time",
	},
	"a lease for a day": {
		func(w *world) {
			w.server.HSet(orders+"leases", "3", "owner/1.1")
			_, _ = w.server.ZAdd(orders+"pending", float64(w.now.Add(24*time.Hour).UnixMilli()), "3")
		}, "orders/3: its lease ends in 24h0m0s",
	},
	"a lease on a dead message": {
		func(w *world) {
			w.server.ZRem(orders+"pending", "3")
			w.server.ZRem(orders+"pending:created", "3")
			w.add("dead", 3)
			w.server.HSet(orders+"leases", "3", "owner/1.1")
		}, "orders/3: it is dead and leased",
	},
	"a lost verdict": {
		func(w *world) { w.server.HDel(orders+"verdicts", "4") }, "orders/4: it is sendable, and that the time",
	},
	"a counter that does not count": {
		func(w *world) { w.server.HSet(orders+"x:3", "confirms", "-1") }, "orders/3: its counter confirms is",
	},
	"a forgotten producer": {
		func(w *world) { w.server.SRem(prefix+":{00}:producers", "orders") }, "is not in the set of producers",
	},
	"a key that nothing knows": {
		func(w *world) { _ = w.server.Set(prefix+":{00}:orders_total", "7") }, "no key has this name",
	},
}

// add puts a message into the index of a state.
func (w *world) add(state string, id int) {
	for _, index := range []string{orders + state, orders + state + ":created"} {
		if _, err := w.server.ZAdd(index, float64(w.now.UnixMilli()), fmt.Sprint(id)); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestPlantedDamageOfKeysIsFound(t *testing.T) {
	for name, plant := range plants {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fill()
			plant.damage(w)
			found := strings.Join(storekeys.Read(w.server, prefix).Check(w.now), "\n")
			if !strings.Contains(found, plant.found) {
				t.Errorf("the check finds:\n%s\nwant %s", found, plant.found)
			}
		})
	}
}

func TestCountsThatAreOffAreFound(t *testing.T) {
	w := newWorld(t)
	w.fill()
	stats, err := w.store.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keys := storekeys.Read(w.server, prefix)
	for i := range stats {
		stats[i].Count++
		if wrong := keys.CheckStats(stats); len(wrong) != 1 {
			t.Errorf("one %v message too many is found as %q", stats[i].State, wrong)
		}
		stats[i].Count--
		for producer := range stats[i].Producers {
			stats[i].Producers[producer]--
			if wrong := keys.CheckStats(stats); len(wrong) != 1 {
				t.Errorf("one PENDING message too few of a producer is found as %q", wrong)
			}
			stats[i].Producers[producer]++
		}
	}
}
