package checks

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/storekeys"
	"github.com/msghandler/msghandler/test/wire"
)

const (
	prefix = "c"
	leased = time.Minute
)

// world is two stores on a miniredis whose calls are observed.
type world struct {
	t        *testing.T
	server   *miniredis.Miniredis
	stores   [2]*redisstore.Store
	leases   *Leases
	coverage *Coverage
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, server: miniredis.RunT(t), leases: NewLeases(), coverage: NewCoverage()}
	observer, err := wire.NewObserver(time.Now, func(c wire.ScriptCall) {
		w.leases.See(c)
		w.coverage.See(c)
	})
	if err != nil {
		t.Fatal(err)
	}
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = door.Close() })
	go func() {
		for {
			c, err := door.Accept()
			if err != nil {
				return
			}
			w.server.Server().ServeConn(observer.Conn(c))
		}
	}()
	for i := range w.stores {
		store, err := redisstore.New(t.Context(), redisstore.Config{
			URL: "redis://" + door.Addr().String(), Prefix: prefix, Shards: 1, Instance: fmt.Sprint("owner", i),
			Retention: time.Hour, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		w.stores[i] = store
	}
	return w
}

func named(id int) halfmsg.Name { return halfmsg.Name{Producer: "orders", ID: fmt.Sprint(id)} }

func (w *world) create(id int) {
	w.t.Helper()
	m := halfmsg.Message{Name: named(id), RoutingKey: "orders", Body: []byte("body"), ConfirmAfter: time.Hour}
	if r := w.stores[0].Create(w.t.Context(), []halfmsg.Message{m})[0]; r.Err != nil {
		w.t.Fatal(r.Err)
	}
}

// submit has a store claim a message; nil: another has it.
func (w *world) submit(store, id int) *halfmsg.Claim {
	w.t.Helper()
	r := w.stores[store].Submit(w.t.Context(), []halfmsg.Name{named(id)}, leased)[0]
	if r.Err != nil {
		w.t.Fatal(r.Err)
	}
	return r.Claim
}

// settle stores an event with a claim, and returns the store's answer.
func (w *world) settle(store int, claim *halfmsg.Claim, event halfmsg.Event, hold time.Duration) halfmsg.Result {
	w.t.Helper()
	cause := ""
	if event.OnTimeline() {
		cause = "cause"
	}
	return w.stores[store].Settle(w.t.Context(), []halfmsg.Settlement{{
		Name: claim.Name, Token: claim.Token, Fingerprint: claim.Fingerprint, Event: event, Hold: hold, Cause: cause,
	}})[0]
}

// lives leads five messages along their ways, with two owners.
func (w *world) lives() {
	for id := 1; id <= 5; id++ {
		w.create(id)
	}
	first := w.submit(0, 1)
	w.settle(0, first, halfmsg.EventCommitted, leased)
	w.settle(0, first, halfmsg.EventAcked, 0)
	w.settle(0, first, halfmsg.EventAcked, 0) // again, as after a lost reply
	second := w.submit(0, 2)
	if w.submit(1, 2) != nil {
		w.t.Fatal("a message is claimed twice")
	}
	w.settle(0, second, halfmsg.EventUnknown, 0)
	again := w.submit(1, 2)
	w.settle(0, second, halfmsg.EventCommitted, leased) // the lease is another's
	w.settle(1, again, halfmsg.EventRolledBack, 0)
	w.stores[1].Rollback(w.t.Context(), []halfmsg.Name{named(3)})
	fourth := w.submit(0, 4)
	w.stores[1].SubmitTrusted(w.t.Context(), []halfmsg.Name{named(4)}, leased)
	w.settle(0, fourth, halfmsg.EventRolledBack, 0) // too late
	w.settle(0, w.submit(0, 5), halfmsg.EventGivenUp, 0)
	w.stores[0].Retry(w.t.Context(), []halfmsg.Name{named(5)}, "operator", "reason")
	w.settle(1, w.submit(1, 5), halfmsg.EventReleased, 0)
}

func TestLeasesOfTheStoreAreRight(t *testing.T) {
	w := newWorld(t)
	w.lives()
	for _, wrong := range w.leases.Check() {
		t.Error(wrong)
	}
	if n := len(w.leases.operations); n != 5 {
		t.Errorf("%d messages have a history, want 5", n)
	}
	keys := storekeys.Read(w.server, prefix)
	for name, state := range w.coverage.states {
		if m := keys.Messages[name]; m == nil || m.State() != state {
			t.Errorf("%s is %v by the replies, and %+v by its keys", name, state, m)
		}
	}
}

// wrong are histories that no lease explains, each with what the check must say.
var wrong = map[string]struct {
	live  func(w *world)
	found string
}{
	"a double owner": {func(w *world) {
		w.settle(0, w.submit(0, 1), halfmsg.EventUnknown, leased)
		w.server.HDel(prefix+":{00}:orders:leases", "1") // the store forgets the lease
		if w.submit(1, 1) == nil {
			w.t.Fatal("nothing was planted: the message is claimed once")
		}
	}, "orders/1"},
	"a settlement without the lease": {func(w *world) {
		claim := w.submit(0, 1)
		w.settle(0, claim, halfmsg.EventUnknown, 0)
		if other := w.submit(1, 1); other == nil {
			w.t.Fatal("the message is not claimed again")
		}
		w.server.HSet(prefix+":{00}:orders:leases", "1", string(claim.Token)) // the store believes the former owner
		if r := w.settle(0, claim, halfmsg.EventCommitted, leased); r.Err != nil {
			w.t.Fatal("nothing was planted: ", r.Err)
		}
	}, "event committed"},
	"a lease that ends too early": {func(w *world) {
		w.settle(0, w.submit(0, 1), halfmsg.EventUnknown, leased)
		_, _ = w.server.ZAdd(prefix+":{00}:orders:pending", 1, "1")
		if w.submit(1, 1) == nil {
			w.t.Fatal("nothing was planted: the message is claimed once")
		}
	}, "claimed as pending"},
	"a loss that goes unnoticed": {func(w *world) {
		w.submit(0, 1)
		w.server.FlushAll()
		w.create(1)
	}, "begun as pending"},
	"DONE without a publisher": {func(w *world) {
		claim := w.submit(0, 1)
		w.leases.See(wire.ScriptCall{
			Script: "settle_paged", Reply: []any{int64(1)}, Called: 1 << 40, Answered: 1<<40 + 1, At: time.Now(),
			Args: []string{"3", "1", "6", string(claim.Token), "0", "orders", "1", "1", "1", "digest"},
		})
	}, "settled as done"},
}

func TestPlantedLeasesAreFound(t *testing.T) {
	for name, plant := range wrong {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create(1)
			plant.live(w)
			if found := strings.Join(w.leases.Check(), "\n"); !strings.Contains(found, plant.found) {
				t.Errorf("the check finds %q, want %q", found, plant.found)
			}
		})
	}
}

func TestForgottenWritesExplainAnything(t *testing.T) {
	w := newWorld(t)
	w.create(1)
	w.submit(0, 1)
	w.leases.Forget(time.Now())
	w.server.FlushAll()
	w.create(1)
	if w.submit(1, 1) == nil {
		t.Fatal("the message is not claimed")
	}
	for _, wrong := range w.leases.Check() {
		t.Error(wrong)
	}
}

func TestCoverageCountsMovesAndReplies(t *testing.T) {
	w := newWorld(t)
	w.lives()
	w.coverage.Struck("kill")
	counts := w.coverage.Counts()
	for _, member := range []string{
		"move none send pending", "move pending submit pending", "move pending committed sendable",
		"move sendable acked done", "move pending unknown pending", "move pending rolled_back rolled_back",
		"move pending rollback rolled_back", "move pending submit_trusted sendable", "move pending given_up abandoned",
		"move abandoned retry pending", "move pending released pending",
		"reply create_paged done", "reply submit_paged done", "reply submit OK", "reply settle_paged done", "reply move LOST",
		"reply move OK", "fault kill in pending", "fault kill in sendable",
	} {
		if counts[member] == 0 {
			t.Errorf("%s is not counted: %v", member, counts)
		}
	}
}

func TestMembersComeFromTheSources(t *testing.T) {
	members, err := Members([]string{"kill"})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(members, "\n") + "\n"
	for _, member := range []string{
		"move dead discard none", "reply submit HELD", "reply create OVER", "reply move ILLEGAL", "reply claim list of 4",
		"fault kill in acknowledged", "sometimes an outcome comes after the end of its lease",
	} {
		if !strings.Contains(all, member+"\n") {
			t.Errorf("%s is no member of\n%s", member, all)
		}
	}
}

func TestMissingMembersAreNamed(t *testing.T) {
	c := NewCoverage()
	c.Add(map[string]int{"a": 1, "c": 1})
	missing, wrong := c.Missing([]string{"a", "b", "c", "d 1", "d 2"}, map[string]string{
		"c": "it cannot be", "d *": "there is none", "e": "it is gone",
	})
	if len(missing) != 1 || missing[0] != "b" {
		t.Errorf("missing are %q, want b", missing)
	}
	if len(wrong) != 2 || !strings.HasPrefix(wrong[0], "c is reached") || !strings.HasPrefix(wrong[1], "e is no member") {
		t.Errorf("wrong exceptions are %q", wrong)
	}
}
