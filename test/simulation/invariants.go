package simulation

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/checks"
	"github.com/msghandler/msghandler/test/storekeys"
	"github.com/msghandler/msghandler/test/wire"
)

// keyPrefix begins the keys of the coordinators.
const keyPrefix = "msghandler"

const (
	// eventsPerCheck is after how many events the keys are checked, and checkEvery how often the world counts.
	eventsPerCheck = 250
	checkEvery     = time.Second
	// mostWrong bounds the reported contradictions of a kind.
	mostWrong = 5
)

// checking judges a world beside the ledger: its keys, its leases, and the assertions of the shipped code. It counts
// what the world covers.
type checking struct {
	world    *World
	leases   *checks.Leases
	coverage *checks.Coverage
	observer *wire.Observer
	// clock is Redis's clock where it is not the bubble's. stepped says that it was not so once: due times may be too far
	// away until the sweeper has come.
	clock   atomic.Pointer[time.Time]
	stepped atomic.Bool

	// stop ends the checks while the world runs, and stopped is closed then.
	stop    context.CancelFunc
	stopped chan struct{}

	mu    sync.Mutex
	told  map[string]bool
	kinds map[string]int
	// stored is when Redis has last stored messages anew, where Redis forgets.
	stored map[string]time.Time
	// damaged are the messages whose record was removed, until they are stored anew.
	damaged map[string]bool
}

func newChecking(w *World) *checking {
	j := &checking{
		world: w, leases: checks.NewLeases(), coverage: checks.NewCoverage(), told: map[string]bool{},
		kinds: map[string]int{}, stored: map[string]time.Time{}, damaged: map[string]bool{},
	}
	var err error
	j.observer, err = wire.NewObserver(j.redisTime, func(c wire.ScriptCall) {
		j.leases.See(c)
		j.coverage.See(c)
		w.acts.see(c)
		if w.faulty.excuse.forgets {
			j.noteStored(checks.Begun(c))
		}
	})
	if err != nil {
		w.T.Fatal(err)
	}
	return j
}

// redisTime is Redis's clock.
func (j *checking) redisTime() time.Time {
	if at := j.clock.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// setRedisTime sets Redis's clock, which stands still then; the zero time lets the clock go with the bubble's again.
func (w *World) setRedisTime(to time.Time) {
	w.Redis.mini.SetTime(to)
	w.checking.stepped.Store(true)
	w.checking.clock.Store(nil)
	if !to.IsZero() {
		w.checking.clock.Store(&to)
	}
}

func (j *checking) noteStored(keys []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, key := range keys {
		j.stored[key] = time.Now()
	}
}

// storedAt is when Redis has last stored a message; zero: no reply about that was seen.
func (j *checking) storedAt(key string) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stored[key]
}

// forget notes that Redis has lost writes just now.
func (j *checking) forget() {
	j.leases.Forget(j.redisTime())
	j.coverage.Forget()
}

// wrong reports a contradiction once.
func (j *checking) wrong(kind, what string) {
	j.mu.Lock()
	again := j.told[what]
	j.told[what] = true
	j.kinds[kind]++
	many := j.kinds[kind] > mostWrong
	j.mu.Unlock()
	if !again && !many {
		j.world.report("%s: %s", kind, what)
	}
}

// observe is Redis's side of a connection.
func (j *checking) observe(c net.Conn) net.Conn { return j.observer.Conn(c) }

// watchAssertions has the world told of broken assertions until the result is called.
func (j *checking) watchAssertions() (stop func()) {
	before := assert.Watch(&assert.Watcher{
		Broken:  func(rule, about string) { j.wrong("ASSERTION", rule+": "+about) },
		Reached: j.coverage.Reached,
	})
	return func() { assert.Watch(before) }
}

// begin begins to check the keys again and again.
func (j *checking) begin() {
	var ctx context.Context
	ctx, j.stop = context.WithCancel(j.world.life)
	j.stopped = make(chan struct{})
	go func() {
		defer close(j.stopped)
		j.watchKeys(ctx)
	}()
}

// end ends the checks, and judges the end.
func (j *checking) end() {
	j.stop()
	<-j.stopped
	j.judge()
}

// watchKeys checks the keys again and again until the context ends. While it checks, all other goroutines of the bubble
// wait, so no script is half done.
func (j *checking) watchKeys(ctx context.Context) {
	checked := 0
	for sleep(ctx, checkEvery) == nil {
		if events := j.world.Network.Events(); events-checked >= eventsPerCheck {
			checked = events
			synctest.Wait()
			j.checkKeys()
		}
	}
}

// checkKeys checks the keys now.
func (j *checking) checkKeys() *storekeys.Snapshot {
	keys := storekeys.Read(j.world.Redis.mini, keyPrefix)
	now := j.redisTime()
	if j.stepped.Load() {
		now = time.Time{}
	}
	for _, what := range keys.Check(now) {
		if name, _, _ := strings.Cut(what, ": "); !j.isDamaged(name) {
			j.wrong("KEYS", what)
		}
	}
	return keys
}

// loseRecord removes the record of an unfinished message, as the hands of an operator do. What else Redis has about the
// message stays, and is no contradiction.
func (j *checking) loseRecord(producer, id string) {
	key, name := keyPrefix+":{00}:"+producer+":m:"+id, producer+"/"+id
	record, err := j.world.Redis.mini.Get(key)
	if err != nil || !strings.HasPrefix(record, "half ") && !strings.HasPrefix(record, "pack ") {
		return
	}
	j.mu.Lock()
	j.damaged[name] = true
	j.mu.Unlock()
	j.world.note("the record of %s is lost", name)
	j.world.Redis.mini.Del(key)
	j.leases.Lose(name, j.redisTime())
}

// foundRecord notes that a message is stored anew.
func (j *checking) foundRecord(producer, id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.damaged, producer+"/"+id)
}

func (j *checking) isDamaged(name string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.damaged[name]
}

// judge judges the end.
func (j *checking) judge() {
	counted, err := j.stats()
	synctest.Wait()
	keys := j.checkKeys()
	if err != nil {
		j.wrong("KEYS", fmt.Sprintf("a coordinator does not count messages when all is repaired: %v", err))
	}
	if err == nil {
		for _, what := range keys.CheckStats(counted) {
			j.wrong("KEYS", what)
		}
	}
	for _, what := range j.leases.Check() {
		j.wrong("LEASE", what)
	}
}

// stats are the counts of a coordinator.
func (j *checking) stats() (stats []halfmsg.Stat, err error) {
	client, closeConn, err := j.world.admin(j.world.Nodes[0])
	if err != nil {
		return nil, err
	}
	defer closeConn()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	answer, err := client.GetStats(ctx, &adminv1.GetStatsRequest{})
	for _, s := range answer.GetStates() {
		stat := halfmsg.Stat{State: halfmsg.State(s.GetState()), Count: s.GetCount()}
		stats = append(stats, stat)
	}
	return stats, err
}
