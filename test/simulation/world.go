package simulation

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
	"github.com/msghandler/msghandler/test/faults"
)

// Where the servers are.
const (
	redisAddr  = "10.0.0.1:6379"
	brokerAddr = "10.0.0.2:5672"
)

// Options are what a run may change. The zero Options are those of the nightly runs.
type Options struct {
	// Choices replaces the choices by the seed.
	Choices Choices
	// Small has little happen in the world.
	Small bool
	// Messages is how many messages there are, and Nodes how many coordinators; 0 lets the seed decide.
	Messages, Nodes int
	// Strikes are the names of the single faults that may happen; nil: all that the seed draws.
	Strikes []string
	// Without names faults that do not happen, and Only those that may; empty: all may.
	Without, Only []string
	// Times is how many times longer everything is than in a quick world, 1 being a quick one; 0 lets the seed decide.
	Times int
	// Settings are keys of the coordinators' configuration.
	Settings map[string]string
	// Prepare is called with the new world, before anything runs in it.
	Prepare func(w *World)
	// Judge is called when everything is final, or is not in time, and reports defects by World.Report.
	Judge func(w *World)
	// Log gets all log lines.
	Log io.Writer
}

// Report is the result of a run.
type Report struct {
	Seed uint64
	// Wrong are the defects; none: the run is green.
	Wrong []string
	// Times is how many times longer everything was than in a quick world.
	Times int
	// Faults are the kinds of faults that the seed drew.
	Faults []string
	// Strikes are the names of the single faults that happened, in their order.
	Strikes []string
	// Events counts the events of connections, Messages and Copies the messages and what consumers got.
	Events, Messages, Copies int
	// Simulated is how long the run took by the clock of the bubble.
	Simulated time.Duration
	// Coverage counts what the run has reached, by the members of checks.Members.
	Coverage map[string]int
	// Log holds the end of the log of a run with defects, and the histories of their messages.
	Log string
}

// World is everything in one bubble.
type World struct {
	T       *testing.T
	Seed    uint64
	Choices Choices
	Network *Network
	Ledger  *faults.Ledger
	Nodes   []*Node
	Redis   *redisServer
	Broker  *amqpbroker.Broker
	// brokerHost is where the broker is.
	brokerHost *Host

	databases databases
	// outbox is the database that the coordinators relay.
	outbox *sqlDatabase

	options   Options
	producers []producing
	direct    *direct
	memories  []*database
	consumer  *consumer
	effects   *effects
	observer  *Host
	log       *worldLog
	faulty    faulty
	checking  *checking
	acts      *acts
	losses    *losses
	pace      pace
	drawn     drawnSettings
	// life ends with the run.
	life context.Context //nolint:containedctx // the world has one life
	end  context.CancelFunc
	// background has the goroutines that outlive their caller.
	background sync.WaitGroup

	mu    sync.Mutex
	wrong []string
	// regressions are the losses of Redis that coordinators must notice.
	regressions []regression
	// notCommitted are the messages about which the SDK said that nothing is committed.
	notCommitted []string
}

// Run plays one world.
func Run(t *testing.T, seed uint64, o Options) (r Report) {
	t.Helper()
	emptyPools()
	cryptotest.SetGlobalRandom(t, seed)
	var of atomic.Pointer[worldLog]
	defer tellOfHang(t, seed, &of)()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, o)
		of.Store(w.log)
		r = w.play()
	})
	return r
}

// played says that this process has played a world.
var played atomic.Bool

// emptyPools empties the pools of libraries after an earlier world: go-redis keeps timers in one, and a timer of one
// bubble fails in another. Two collections empty a pool.
func emptyPools() {
	if played.Swap(true) {
		runtime.GC()
		runtime.GC()
	}
}

func newWorld(t *testing.T, seed uint64, o Options) *World {
	t.Helper()
	w := &World{
		T: t, Seed: seed, Choices: o.Choices, Network: NewNetwork(), Ledger: faults.NewLedger(), options: o,
		log: &worldLog{begun: time.Now(), level: slog.LevelInfo, live: o.Log},
	}
	if w.Choices == nil {
		w.Choices = NewChoices(seed)
	}
	w.acts, w.losses = newActs(w), newLosses(w)
	w.pace = drawPace(w.Choices, o)
	w.drawFaults()
	w.drawn, w.faulty.strikes.allowed = drawSettings(w.Choices, w.pace, w.faulty.excuse.forgets), o.Strikes
	if w.hasFault(replaysName) && w.drawn.keys["archive.retention"] == "0" {
		w.drawn.keys["archive.retention"] = "1h"
	}
	w.databases.lost, w.databases.held = map[string]bool{}, map[string][]span{}
	w.life, w.end = context.WithCancel(context.Background())
	w.checking = newChecking(w)
	w.faulty.strikes.struck = w.checking.coverage.Struck
	return w
}

// play plays the two phases and judges the end.
func (w *World) play() Report {
	begun := time.Now()
	defer w.checking.watchAssertions()()
	defer w.close()
	if w.options.Prepare != nil {
		w.options.Prepare(w)
	}
	if err := w.open(); err != nil {
		w.report("the world does not begin: %v", err)
		return w.sum(begun)
	}
	w.checking.begin()
	w.breakThings()
	w.produce()
	w.heal()
	w.judge()
	w.checking.end()
	if w.options.Judge != nil {
		w.options.Judge(w)
	}
	w.stop()
	return w.sum(begun)
}

// open starts everything.
func (w *World) open() error {
	var err error
	w.Redis, err = startRedis(w.life, w.Network.Host("redis", "10.0.0.1"), w.pace.ttlStep, w.checking.observe)
	if err != nil {
		return err
	}
	w.Broker = amqpbroker.New(amqpbroker.Config{Judge: w.judgePublished, Logger: slog.New(slog.DiscardHandler)})
	w.brokerHost = w.Network.Host("broker", "10.0.0.2")
	if err := w.brokerHost.Serve(brokerAddr, func(c net.Conn) { _ = w.Broker.ServeConn(c) }); err != nil {
		return err
	}
	if w.consumer, err = startConsumer(w); err != nil {
		return err
	}
	if w.effects, err = startEffects(w); err != nil {
		return err
	}
	if w.hasProducer(insertingName) {
		if w.outbox, err = w.newOutbox(); err != nil {
			return err
		}
	}
	w.observer = w.Network.Host("observer", "10.9.0.1")
	for i := range cmp.Or(w.options.Nodes, w.pace.nodes(w.Choices)) {
		w.Nodes = append(w.Nodes, &Node{world: w, Number: i, Address: fmt.Sprintf("10.1.0.%d:9090", i+1)})
	}
	for i := range w.Nodes {
		if err := w.Nodes[i].start(); err != nil {
			return err
		}
	}
	return w.startProducers()
}

// stop stops everything as operators do.
func (w *World) stop() {
	for _, p := range w.producers {
		p.close()
	}
	for _, n := range w.Nodes {
		n.end(time.Minute)
	}
}

// close ends all remaining parts.
func (w *World) close() {
	w.end()
	if w.consumer != nil {
		w.consumer.close()
	}
	if w.effects != nil {
		w.effects.close()
	}
	w.background.Wait()
	w.databases.close()
	if w.Broker != nil {
		_ = w.Broker.Close()
	}
	if w.Redis != nil {
		w.Redis.mini.Close()
	}
}

func (w *World) goInBackground(f func()) { w.background.Go(f) }

// report notes a defect.
func (w *World) report(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// Report notes a defect.
func (w *World) Report(words string) { w.report("%s", words) }

// note writes a line of the world's own into the log.
func (w *World) note(format string, args ...any) {
	_, _ = fmt.Fprintf(w.log, "at=%.6f world: %s\n", time.Since(w.log.begun).Seconds(), fmt.Sprintf(format, args...))
}

func (w *World) sum(begun time.Time) Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids, _, copies := w.Ledger.Totals()
	r := Report{
		Seed: w.Seed, Wrong: w.wrong, Times: w.pace.times, Faults: w.faulty.names(), Strikes: w.faulty.strikes.happened,
		Events: w.Network.Events(), Messages: ids, Copies: copies,
		Simulated: time.Since(begun), Coverage: w.checking.coverage.Counts(),
	}
	if len(r.Wrong) > 0 {
		r.Log = w.log.text()
	}
	return r
}
