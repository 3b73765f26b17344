package faults

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// mixed is a fault that can come at any time, beside others. The fault lasts until its context ends, or for its own
// time.
type mixed struct {
	row   string
	fault func(ctx context.Context, w *world, random *rand.Rand)
}

// The faults of the mix. Two faults run at once, one from each table: faults of coordinators are in the first table.
// A fault of the second table must not wait for a coordinator that has just been killed.
var (
	mixInside = []mixed{
		{"F03", killCoordinators},
		{"F04", rollCoordinators},
		{"F16", stopOwner},
	}
	mixOutside = []mixed{
		{"F13_1s", killRedis(time.Second)},
		{"F13_5s", killRedis(5 * time.Second)},
		{"F18", flushScripts},
		{"F21_close", closeConnections},
		{"F21_app", stopApplication},
		{"F22_binding", unbind},
		{"F22_exchange", deleteExchange},
		{"F22_permission", revoke(aMoment)},
	}
)

// mixRows is the soak: `make soak MINUTES=20 SEED=7`.
var mixRows = []row{mixRow()}

// mix is the faults of two tables in random order, for as long as the load lasts.
type mix struct {
	mu     sync.Mutex
	counts map[string]int
	began  time.Time
}

// memoryBound limits the memory of the test process, however long the process runs.
const memoryBound = 1 << 30

func mixRow() row {
	m := &mix{counts: map[string]int{}}
	// Asked as often as by default: a Send may wait for its answer longer than a few questions take here, and would find
	// its message set aside.
	world := options{redis: durable.redis, ownBroker: true, settings: []string{"MSGHANDLER_CONFIRM_ATTEMPTS=15"}}
	return row{name: "mix", copies: true, leavesMarkers: true, world: world, fault: m.run, judge: m.judge}
}

func (m *mix) run(ctx context.Context, w *world, random *rand.Rand) {
	m.began = time.Now()
	var running sync.WaitGroup
	for _, table := range [][]mixed{mixInside, mixOutside} {
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		running.Go(func() { m.draw(ctx, w, table, own) })
	}
	interim := time.NewTicker(10 * time.Second)
	defer interim.Stop()
	for ctx.Err() == nil {
		select {
		case <-interim.C:
			w.ledger.Fold(time.Minute)
			m.report(w)
		case <-ctx.Done():
		}
	}
	running.Wait()
}

// killCoordinators kills one coordinator after the other at random moments.
func killCoordinators(ctx context.Context, w *world, random *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(100+random.IntN(900))*time.Millisecond)
		c := w.coordinators[random.IntN(len(w.coordinators))]
		w.ledger.Fault("kill -9 of " + c.grpc)
		_ = w.end(c, syscall.SIGKILL) // killed, and exits so
		w.start(c)
	}
	w.allReady()
}

// draw breaks one thing after another, with a moment of calm in between: each fault of the table once, in random
// order, and then all over again.
func (m *mix) draw(ctx context.Context, w *world, table []mixed, random *rand.Rand) {
	var order []int
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(5000))*time.Millisecond)
		if len(order) == 0 {
			order = random.Perm(len(table))
		}
		next := table[order[0]]
		order = order[1:]
		m.count(next.row)
		w.ledger.Fault("the mix draws " + next.row)
		some, cancel := context.WithTimeout(ctx, time.Duration(2000+random.IntN(6000))*time.Millisecond)
		next.fault(some, w, random)
		cancel()
	}
}

func (m *mix) count(row string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[row]++
}

// faults is how often each fault was drawn.
func (m *mix) faults() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, row := range slices.Sorted(maps.Keys(m.counts)) {
		all = append(all, fmt.Sprintf("%s %d", row, m.counts[row]))
	}
	return strings.Join(all, ", ")
}

func (m *mix) report(w *world) {
	ids, committed, copies := w.ledger.Totals()
	flagged, _ := w.ledger.Flagged()
	w.t.Logf("%v: %d ids, %d committed, %d of them not delivered yet, %d copies (%d flagged); %s",
		time.Since(m.began).Round(time.Second), ids, committed, w.ledger.UndeliveredOf(""), copies, flagged, m.faults())
}

func (m *mix) judge(t *testing.T, w *world, _ *load, _ End) {
	t.Helper()
	m.report(w)
	if len(m.counts) == 0 {
		t.Error("nothing was broken")
	}
	// In a few seconds only a fault or two was drawn, which may have hit nothing.
	if flagged, _ := w.ledger.Flagged(); flagged == 0 && *length >= time.Minute {
		t.Error("no copy is flagged: the faults hit nothing under way")
	}
	for _, c := range w.coordinators {
		t.Logf("%s took %d MiB at most since its start", c.grpc, highWater(t, c.Cmd.Process.Pid)>>20)
	}
	most := highWater(t, os.Getpid())
	t.Logf("this process took %d MiB at most", most>>20)
	if most > memoryBound {
		t.Errorf("this process took %d MiB", most>>20)
	}
}
