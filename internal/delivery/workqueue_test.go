package delivery

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// testQueue is a WorkQueue whose lanes only record their batches. It runs in a bubble of fake time.
type testQueue struct {
	*WorkQueue
	t       *testing.T
	mu      sync.Mutex
	workers lifecycle.Group
	// batches are the names of the lanes in the order in which batches were handled, handled the ids of the messages.
	batches []string
	handled []string
	wakes   chan struct{}
}

type testLane struct {
	*Lane
	queue  *testQueue
	name   string
	size   int
	permit Permit
	// work is called for each batch, room is the answer of End.
	work func(b *Batch)
	room bool
}

func newTestQueue(t *testing.T, config WorkQueueConfig) *testQueue {
	q := &testQueue{t: t, wakes: make(chan struct{}, 1)}
	config.Lock, config.Workers, config.Logger = &q.mu, &q.workers, slog.New(slog.DiscardHandler)
	config.Pipeline, config.State = &Pipeline{SendLoop: q}, halfmsg.Sendable
	if config.Capacity.Claims == 0 {
		config.Capacity.Claims = 1000
	}
	q.WorkQueue = NewWorkQueue(config)
	return q
}

// Wake implements Waker.
func (q *testQueue) Wake() {
	select {
	case q.wakes <- struct{}{}:
	default:
	}
}

func (q *testQueue) lane(name string, size, parallel, room int) *testLane {
	l := &testLane{queue: q, name: name, size: size}
	l.Lane = q.NewLane(l, parallel, room)
	return l
}

func (l *testLane) Permit(time.Time) Permit { return l.permit }
func (l *testLane) Begin(Permit) (size int) { return l.size }
func (l *testLane) End(*Batch) (room bool)  { return l.room }
func (l *testLane) push(messages ...Leased) { l.queue.push(l, messages...) }
func (l *testLane) numbered(n int) []Leased { return numberedFrom(l.name, n) }
func (l *testLane) pushNumbered(n int)      { l.push(l.numbered(n)...) }
func (q *testQueue) locked(do func())       { q.mu.Lock(); defer q.mu.Unlock(); do() }
func (q *testQueue) wait()                  { _ = q.workers.Wait(q.t.Context()) }
func (q *testQueue) recorded() (b []string) {
	q.locked(func() { b = slices.Clone(q.batches) })
	return b
}

func (q *testQueue) messages() (ids []string) {
	q.locked(func() { ids = slices.Sorted(slices.Values(q.handled)) })
	return ids
}

func numberedFrom(name string, n int) (all []Leased) {
	for i := range n {
		claim := halfmsg.Claim{}
		claim.Name = halfmsg.Name{Producer: "orders", ID: fmt.Sprintf("%s %05d", name, i)}
		all = append(all, Leased{Claim: claim})
	}
	return all
}

func (l *testLane) Work(b *Batch) {
	l.queue.locked(func() {
		l.queue.batches = append(l.queue.batches, l.name)
		for i := range b.Messages {
			l.queue.handled = append(l.queue.handled, b.Messages[i].ID)
		}
	})
	if l.work != nil {
		l.work(b)
	}
}

func (q *testQueue) push(l *testLane, messages ...Leased) {
	q.locked(func() {
		for i := range messages {
			l.Push(&messages[i])
		}
	})
}

// Invariant: no more batches are under way than there are places, in all lanes and in each; and no fewer while messages
// wait.
func TestWorkQueueFillsItsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t, WorkQueueConfig{Parallel: 4})
		release := make(chan struct{})
		wide, narrow := q.lane("wide", 1, 4, 0), q.lane("narrow", 1, 1, 0)
		wide.work = func(*Batch) { <-release }
		narrow.work = wide.work
		wide.pushNumbered(20)
		narrow.pushNumbered(20)
		for range 10 {
			synctest.Wait()
			q.locked(func() {
				if wide.Running()+narrow.Running() != 4 || narrow.Running() > 1 {
					t.Errorf("%d and %d batches are under way, want 4 in all and 1 in the second lane",
						wide.Running(), narrow.Running())
				}
			})
			release <- struct{}{}
		}
		close(release)
		q.wait()
		if got := len(q.messages()); got != 40 {
			t.Errorf("%d of 40 messages were handled", got)
		}
	})
}

// Invariant: a lane that hangs does not take the places of a lane that has work.
func TestHangingLaneLeavesPlacesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t, WorkQueueConfig{Parallel: 4})
		release := make(chan struct{})
		hangs, works := q.lane("hangs", 1, 4, 0), q.lane("works", 1, 4, 0)
		hangs.work = func(*Batch) { <-release }
		works.work = func(*Batch) { time.Sleep(time.Second) }
		q.locked(func() {
			for _, m := range hangs.numbered(20) {
				hangs.Push(&m)
			}
			for _, m := range works.numbered(20) {
				works.Push(&m)
			}
		})
		time.Sleep(9500 * time.Millisecond)
		if got := len(slices.DeleteFunc(q.recorded(), func(lane string) bool { return lane == "hangs" })); got != 20 {
			t.Errorf("%d of 20 batches of the working lane were taken in ten seconds", got)
		}
		close(release)
		q.wait()
	})
}

// Invariant: lanes in turn starve neither fresh messages nor the backlog, however many of the other kind wait.
func TestLanesInTurnStarveNeither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t, WorkQueueConfig{Parallel: 1, InTurn: true})
		fresh, backlog := q.lane("fresh", 5, 1, 0), q.lane("backlog", 5, 1, 0)
		fresh.work = func(*Batch) { time.Sleep(time.Second) }
		backlog.work = fresh.work
		q.locked(func() {
			for _, m := range backlog.numbered(500) {
				backlog.Push(&m)
			}
			for _, m := range fresh.numbered(50) {
				fresh.Push(&m)
			}
		})
		q.wait()
		batches := q.recorded()
		for i := range 20 {
			if want := []string{"fresh", "backlog"}[i%2]; batches[i] != want {
				t.Fatalf("batch %d is of %s, want turns: %v", i, batches[i], batches[:20])
			}
		}
		if len(batches) != 110 {
			t.Errorf("%d batches, want 10 and 100", len(batches))
		}
	})
}

// Invariant: a lane that waits is taken from when its permit changes, and stops no other lane before.
func TestWaitingLaneStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t, WorkQueueConfig{Parallel: 1})
		waits, works := q.lane("waits", 1, 1, 0), q.lane("works", 1, 1, 0)
		waits.permit = Wait
		waits.pushNumbered(3)
		works.pushNumbered(3)
		q.wait()
		if got := q.recorded(); !slices.Equal(got, []string{"works", "works", "works"}) {
			t.Errorf("batches %v", got)
		}
		q.locked(func() { waits.permit = Proceed; q.Dispatch() })
		q.wait()
		if got := len(q.messages()); got != 6 {
			t.Errorf("%d of 6 messages were handled", got)
		}
	})
}

// Invariant: in every order of pushes, passes and workers each message is handled once, the bound holds, and no wake-up
// is lost: a pass without room is asked for again.
func TestWorkQueueLosesNoWakeUp(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			const stored, room = 500, 20
			random := rand.New(rand.NewPCG(seed, seed))
			q := newTestQueue(t, WorkQueueConfig{Parallel: 3, Capacity: Capacity{Claims: room}})
			l := q.lane("lane", 1+random.IntN(7), 3, 0)
			pauses := make([]time.Duration, 50)
			for i := range pauses {
				pauses[i] = time.Duration(random.IntN(3)) * time.Millisecond
			}
			l.work = func(b *Batch) { time.Sleep(pauses[len(b.Messages)*7%len(pauses)]) }
			l.room = true
			for rest := l.numbered(stored); len(rest) > 0; {
				wanted := 1 + random.IntN(2*room)
				q.locked(func() {
					n := min(q.Free(), wanted, len(rest))
					for i := range n {
						l.Push(&rest[i])
					}
					rest = rest[n:]
					q.WantPass(n == 0)
					if q.Waiting() > room {
						t.Errorf("%d wait in room for %d", q.Waiting(), room)
					}
					wanted = n
				})
				if wanted == 0 {
					<-q.wakes // a lost wake-up is a deadlock of the bubble
				}
			}
			q.wait()
			want := []string{}
			for _, m := range l.numbered(stored) {
				want = append(want, m.ID)
			}
			if got := q.messages(); !slices.Equal(got, want) {
				t.Errorf("%d messages were handled, want each of %d once", len(got), stored)
			}
		})
	}
}

// Invariant: nothing is lost on Close. Each message was handled, or is handed back.
func TestCloseOfWorkQueueLosesNothing(t *testing.T) {
	var mu sync.Mutex
	q := newTestQueue(t, WorkQueueConfig{Parallel: 2, Capacity: Capacity{Claims: 10_000}})
	lanes := []*testLane{q.lane("first", 3, 2, 0), q.lane("second", 5, 1, 0)}
	var pushers sync.WaitGroup
	refused := 0
	closing := make(chan struct{})
	for _, l := range lanes {
		l.work = func(*Batch) { <-closing }
		l.push(numberedFrom("before "+l.name, 20)...)
		pushers.Go(func() {
			for _, m := range l.numbered(2000) {
				q.mu.Lock()
				closed := q.closed
				if !closed {
					l.Push(&m)
				}
				q.mu.Unlock()
				if closed {
					mu.Lock()
					refused++
					mu.Unlock()
				}
			}
		})
	}
	var back []Leased
	q.locked(func() { back = q.Close() })
	close(closing)
	pushers.Wait()
	q.wait()
	if q.locked(func() { back = append(back, q.Close()...) }); q.Waiting() != 0 {
		t.Errorf("%d still wait", q.Waiting())
	}
	seen := map[string]int{}
	for _, id := range q.messages() {
		seen[id]++
	}
	for i := range back {
		seen[back[i].ID]++
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was handled or handed back %d times", id, n)
		}
	}
	if len(seen)+refused != 4040 {
		t.Errorf("%d of 4040 messages were handled, handed back or refused", len(seen)+refused)
	}
}

// Invariant: after Close no worker takes a message, and no pass is asked for.
func TestClosedWorkQueueTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t, WorkQueueConfig{Parallel: 1})
		l := q.lane("lane", 1, 1, 0)
		release := make(chan struct{})
		l.work, l.room = func(*Batch) { <-release }, true
		l.pushNumbered(5)
		synctest.Wait()
		q.locked(func() {
			q.WantPass(true)
			if got := len(q.Close()); got != 4 {
				t.Errorf("%d were handed back, want the four waiting messages", got)
			}
		})
		close(release)
		q.wait()
		if len(q.messages()) != 1 || len(q.wakes) != 0 || q.Waiting() != 0 {
			t.Errorf("%d were handled, %d passes asked for, %d wait", len(q.messages()), len(q.wakes), q.Waiting())
		}
	})
}

// Invariant: the messages beyond the room of a lane are postponed, the last first, even when the lane has to wait.
func TestCrowdedLanePostponesItsTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t, WorkQueueConfig{Parallel: 2})
		l := q.lane("lane", 100, 2, 3)
		l.permit = Wait
		var postponed []string
		l.work = func(b *Batch) {
			if b.Permit != Postpone {
				t.Errorf("a permit of %d", b.Permit)
			}
			for i := range b.Messages {
				postponed = append(postponed, b.Messages[i].ID)
			}
		}
		l.pushNumbered(5)
		q.wait()
		if want := []string{"lane 00003", "lane 00004"}; !slices.Equal(postponed, want) || l.Len() != 3 {
			t.Errorf("postponed %v, want %v; %d wait, want 3", postponed, want, l.Len())
		}
		q.locked(func() { q.Close() })
	})
}

// Invariant: the place of a batch is free once some of its messages are settled, unless too many stragglers are left.
func TestStragglersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t, WorkQueueConfig{Parallel: 1, MaxStragglers: 4})
		l := q.lane("lane", 3, 1, 0)
		release := make(chan struct{})
		l.work = func(b *Batch) {
			b.Settled(1)
			<-release
		}
		l.pushNumbered(30)
		synctest.Wait()
		// Two batches leave two stragglers each. The third batch leaves two more, which are too many.
		if got := len(q.recorded()); got != 3 {
			t.Errorf("%d batches were taken, want 3", got)
		}
		release <- struct{}{}
		synctest.Wait()
		if got := len(q.recorded()); got != 4 {
			t.Errorf("%d batches were taken after stragglers were settled, want 4", got)
		}
		close(release)
		q.wait()
		if got := len(q.messages()); got != 30 {
			t.Errorf("%d of 30 were handled", got)
		}
	})
}

// Invariant: a batch that panics gives its place back.
func TestPanickedBatchKeepsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t, WorkQueueConfig{Parallel: 1})
		l := q.lane("lane", 1, 1, 0)
		l.work = func(*Batch) { panic("poison") }
		l.pushNumbered(3)
		q.wait()
		if got := len(q.messages()); got != 3 || !q.Idle() {
			t.Errorf("%d of 3 batches were taken, idle: %t", got, q.Idle())
		}
	})
}

// Messages that were taken out of a lane are not kept in memory by the messages that still wait.
func TestTakenMessagesAreLetGo(t *testing.T) {
	for _, from := range []int{0, 1} {
		all := make([]Leased, 3)
		for i := range all {
			all[i].Body = []byte{byte(i)}
		}
		l := &Lane{queue: &WorkQueue{}, waiting: all}
		taken := l.cut(from, 1)
		if len(taken) != 1 || int(taken[0].Body[0]) != from || len(l.waiting) != 2 {
			t.Fatalf("from %d: took %v, %d are left", from, taken, len(l.waiting))
		}
		for _, h := range l.waiting {
			if bytes.Equal(h.Body, taken[0].Body) {
				t.Errorf("from %d: the taken message still waits", from)
			}
		}
		kept := 0
		for i := range all {
			if all[i].Body != nil {
				kept++
			}
		}
		if kept != 2 {
			t.Errorf("from %d: %d bodies are kept for 2 messages", from, kept)
		}
	}
}
