package random

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// trusted is the producer whose Submit is the verdict.
const trusted = "vip"

// owners is how many instances share the store.
const owners = 3

// defect is something known to be wrong, switched in around the store or the publisher. The zero value is nothing
// wrong.
type defect struct {
	store     func(*miniredis.Miniredis, store) store
	publisher func(halfmsg.Publisher) halfmsg.Publisher
	// believed takes every Submit for a verdict, from any producer.
	believed bool
}

// lab is the server and the stores, which all sequences of a test use one after the other. The lab lives outside the
// bubble of fake time: a wait for a socket stops fake time.
type lab struct {
	server *miniredis.Miniredis
	stores [owners]store
	defect defect
	made   map[halfmsg.Move]int
	// played is how many sequences there were. Each begins on a day of its own, for the stores tell messages of one name
	// apart by when they were created.
	played int
}

func newLab(t *testing.T, d defect) *lab {
	l := &lab{server: miniredis.RunT(t), defect: d, made: map[halfmsg.Move]int{}}
	for i := range l.stores {
		real, err := redisstore.New(t.Context(), redisstore.Config{
			URL: "redis://" + l.server.Addr(), Prefix: prefix, Shards: 1, Instance: fmt.Sprint("owner", i),
			Retention: 30 * 24 * time.Hour, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = real.Close() })
		l.stores[i] = real
		if d.store != nil {
			l.stores[i] = d.store(l.server, real)
		}
	}
	return l
}

// world is one sequence.
type world struct {
	*lab
	names     []halfmsg.Name
	instances [owners]*instance
	afterAck  bool
	// keyed says that the messages of the producer orders have one ordering key.
	keyed bool
	story []string

	mu         sync.Mutex
	model      model
	parked     []*effect
	brokerAway bool
}

// run plays one sequence and returns the violation with its story; empty means none.
func (l *lab) run(t *testing.T, steps []step, afterAck bool) (wrong string) {
	synctest.Test(t, func(*testing.T) {
		l.server.FlushAll()
		w := &world{
			lab: l, afterAck: afterAck, keyed: steps[0].C%2 == 1,
			model: model{items: map[halfmsg.Name]*item{}, made: l.made},
		}
		for _, name := range []string{"orders/1", "orders/2", "stock/1", trusted + "/1"} {
			producer, id, _ := strings.Cut(name, "/")
			w.names = append(w.names, halfmsg.Name{Producer: producer, ID: id})
		}
		for _, name := range w.names {
			w.model.items[name] = &item{attempts: map[int]bool{}}
		}
		w.advance(time.Duration(l.played) * 24 * time.Hour)
		l.played++
		for i := range w.instances {
			w.instances[i] = w.start(i)
		}
		w.play(steps)
		w.drain(steps)
		for _, n := range w.instances {
			n.die()
		}
		for _, n := range w.instances { // the ones that die has started
			n.die()
		}
		w.stop()
		if wrong = w.model.wrong; wrong != "" {
			wrong += "\n" + strings.Join(w.story, "\n")
		}
	})
	return wrong
}

// stop ends the instances that are left.
func (w *world) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, n := range w.instances {
		_ = n.confirmer.Close(ctx)
		_ = n.sender.Close(ctx)
	}
	time.Sleep(time.Hour) // background retries give up
	synctest.Wait()
}

func (w *world) play(steps []step) {
	for _, s := range steps {
		w.do(s)
		if w.settle(); w.model.wrong != "" {
			return
		}
	}
}

// settle waits until everything stands at a gate or is done, and compares.
func (w *world) settle() {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compare()
	brokenAssertions.Range(func(rule, about any) bool {
		w.model.failf("%s: an assertion of the shipped code is broken: %s", about, rule)
		return true
	})
}

func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

// advance lets time pass, for the store first and then for the instances.
func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	now := time.Now().Add(d)
	w.model.now = now.UnixMilli()
	w.server.SetTime(now)
	w.mu.Unlock()
	time.Sleep(d)
}

// unpark takes an effect from the gate. w.mu is held.
func (w *world) unpark(e *effect) {
	w.parked = slices.DeleteFunc(w.parked, func(other *effect) bool { return other == e })
}

// waiting are the effects at the gate, in an order that does not depend on the scheduler.
func (w *world) waiting() []*effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.parked, func(a, b *effect) int {
		return cmp.Or(cmp.Compare(a.owner.index, b.owner.index), cmp.Compare(a.what, b.what))
	})
	return slices.Clone(w.parked)
}

// release lets an effect go on.
func (w *world) release(e *effect, answer int) {
	w.tell("  owner%d goes on: %s, answer %d", e.owner.index, e.what, answer)
	w.mu.Lock()
	w.unpark(e)
	w.mu.Unlock()
	e.answer <- answer
}

// drain lets everything come to its end: for some rounds with the answers of steps, and then with a healthy world, in
// which nothing may be stuck. The instances make their passes in turn: most of the time goes here.
func (w *world) drain(steps []step) {
	w.tell("drain")
	w.setBroker(false)
	const rough = 10
	for round := 0; round < 50 && w.model.wrong == ""; round++ {
		if round == rough/2 {
			w.decideAll()
		}
		if round > rough {
			if w.over() && len(w.waiting()) == 0 {
				w.delivered()
				return
			}
			w.retryAll()
		}
		for _, pass := range []string{"confirm pass", "send pass", "delete pass"} {
			w.do(step{Do: pass, A: round % owners})
			w.settle()
		}
		for i, e := range w.waiting() {
			answer := 0
			if round < rough {
				answer = steps[(7*round+i)%len(steps)].answer()
			}
			w.release(e, answer)
			w.settle()
		}
		w.advance(3 * time.Second)
		w.settle()
	}
	if w.model.wrong == "" {
		w.model.failf("stuck")
	}
}

func (w *world) setBroker(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.brokerAway = away
}

// decideAll commits what no producer has decided.
func (w *world) decideAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range w.model.items {
		if it.truth == running {
			it.truth = committed
		}
	}
}

func (w *world) over() bool {
	for _, it := range w.model.items {
		if it.state != halfmsg.None && !it.state.Final() {
			return false
		}
	}
	return true
}

// retryAll is the operator who retries abandoned and dead messages, except a trusted producer's committed messages:
// the producer submits those again.
func (w *world) retryAll() {
	for i, name := range w.names {
		it := w.model.items[name]
		if it.state == halfmsg.Abandoned && name.Producer == trusted && it.truth == committed {
			w.do(step{Do: "trusted submit"})
		} else if it.state == halfmsg.Abandoned || it.state == halfmsg.Dead {
			w.do(step{Do: "retry", B: i})
		}
	}
}

// delivered wants every committed message to have reached the broker, and no other.
func (w *world) delivered() {
	for _, name := range w.names {
		it := w.model.items[name]
		if it.sent && !it.discarded && it.acked != (it.truth == committed) {
			w.model.failf("%s: business %v, acknowledged %v", name, it.truth, it.acked)
		}
		if it.truth == committed && it.sent && !it.discarded && it.state != halfmsg.Done {
			w.model.failf("%s: committed, and ends as %v", name, it.state)
		}
	}
}
