// Package loop is how every periodic worker runs, wakes, backs off and stops.
//
// A worker writes only its pass, which does what is due and returns; tests call the pass directly. The Loop owns the
// rest: when the next pass comes, what follows an error, and how the worker ends.
package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// DefaultTimeout bounds a pass when Config.Timeout is zero.
const DefaultTimeout = time.Minute

// Config says what a Loop runs and when.
type Config struct {
	// Name names the loop in logs. Required.
	Name string
	// Schedule is when passes begin: a cron spec of five fields in UTC, or "@every 1s"; parts of a second are fine.
	// Required.
	Schedule string
	// Timeout bounds the context of one pass. Default DefaultTimeout.
	Timeout time.Duration
	// Pass does what is due and returns. more says that it left something behind that can be done now: the next pass
	// then follows at once. Passes never overlap. Required.
	Pass func(ctx context.Context) (more bool, err error)
	// Backoff is how long to wait after that many consecutive failed passes less one; neither the schedule nor Wake cut
	// it short. It should grow, be jittered and have a cap. Required.
	Backoff func(failures int) time.Duration
	// Logger gets failed passes. Default slog.Default().
	Logger *slog.Logger
}

// Status is how a Loop has fared.
type Status struct {
	// Passes counts the passes so far, failed ones included.
	Passes int64
	// LastSuccessAt is when a pass last ended well; zero when none has.
	LastSuccessAt time.Time
	// LastErrorAt and LastError tell of the last failed pass; they stand when a later one succeeds.
	LastErrorAt time.Time
	LastError   error
	// Failures counts the consecutive failed passes; a success sets it back to zero.
	Failures int
}

// Loop runs passes one after another, on a schedule and when it is woken. Its methods may be called concurrently.
type Loop struct {
	config   Config
	schedule cron.Schedule
	// wake holds at most one token, so that any number of wake-ups during a pass make one pass after it.
	wake chan struct{}
	// stopping is closed when no further pass may begin.
	stopping chan struct{}
	// running has the goroutine that makes the passes.
	running lifecycle.Group
	// passes is the context of all passes; cancel ends it when a stop cannot wait any longer.
	passes context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	started bool
	stopped bool
	status  Status
}

// New returns a Loop that does not run yet. It fails when a required field is missing or the schedule cannot be read.
func New(config Config) (*Loop, error) {
	if config.Name == "" || config.Pass == nil || config.Backoff == nil {
		return nil, errors.New("a loop needs a name, a pass and a backoff")
	}
	schedule, err := parse(config.Schedule)
	if err != nil {
		return nil, fmt.Errorf("schedule of the %s loop: %w", config.Name, err)
	}
	config.Timeout = cmp.Or(config.Timeout, DefaultTimeout)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	l := &Loop{
		config:   config,
		schedule: schedule,
		wake:     make(chan struct{}, 1),
		stopping: make(chan struct{}),
	}
	l.passes, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

// Start begins to run passes. The first one comes after a random part of the time until the schedule's first tick, so
// that instances that start together do not work in step. Further calls, and calls after Stop, do nothing.
func (l *Loop) Start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started || l.stopped {
		return
	}
	l.started = true
	l.running.Go(l.run)
}

// Wake asks for a pass now: at once when the loop is idle, right after the running pass otherwise. It never blocks, and
// any number of calls before that pass begins make one pass.
func (l *Loop) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Stop lets the running pass end and begins no other. When ctx ends first, the pass's context is cancelled and Stop
// returns the context's error without waiting any longer. It may be called repeatedly, and before Start.
func (l *Loop) Stop(ctx context.Context) error {
	l.mu.Lock()
	if !l.stopped {
		l.stopped = true
		close(l.stopping)
	}
	l.mu.Unlock()
	defer l.cancel()
	if err := l.running.Wait(ctx); err != nil {
		return fmt.Errorf("the %s loop is still in a pass: %w", l.config.Name, err)
	}
	return nil
}

// Status says how the loop has fared so far.
func (l *Loop) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// run makes passes until the loop is stopped.
func (l *Loop) run() {
	if !l.pauseUntilWoken(l.firstDelay()) {
		return
	}
	clock := l.startClock()
	defer clock.Stop()
	for {
		more, err := l.pass()
		switch {
		case err != nil:
			if !l.pause(l.config.Backoff(l.Status().Failures - 1)) {
				return
			}
		case more && !l.isStopping():
		default:
			if !l.awaitWake() {
				return
			}
		}
	}
}

// startClock lets cron wake the loop. Its job is a wake-up and nothing else, which neither blocks nor panics nor
// overlaps: the passes run in the loop's own goroutine, where they are serialised and recovered.
func (l *Loop) startClock() *cron.Cron {
	clock := cron.New(cron.WithLocation(time.UTC))
	clock.Schedule(l.schedule, cron.FuncJob(l.Wake))
	clock.Start()
	return clock
}

func (l *Loop) firstDelay() time.Duration {
	now := time.Now().UTC()
	return rand.N(max(l.schedule.Next(now).Sub(now), 1))
}

// pass makes one pass and keeps its result.
func (l *Loop) pass() (more bool, err error) {
	ctx, cancel := context.WithTimeout(l.passes, l.config.Timeout)
	defer cancel()
	more, err = l.recovered(ctx)
	failures := l.record(err)
	if err != nil {
		l.config.Logger.Warn("a pass failed", "loop", l.config.Name, "failures", failures, "error", err)
	}
	return more, err
}

// recovered turns a panic of the pass into an error that holds its stack.
func (l *Loop) recovered(ctx context.Context) (more bool, err error) {
	if failure := lifecycle.Recovered(func() { more, err = l.config.Pass(ctx) }); failure != nil {
		return false, fmt.Errorf("%w\n%s", failure, failure.Stack)
	}
	return more, err
}

func (l *Loop) record(err error) (failures int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.Passes++
	if err == nil {
		l.status.Failures, l.status.LastSuccessAt = 0, time.Now()
		return 0
	}
	l.status.Failures++
	l.status.LastErrorAt, l.status.LastError = time.Now(), err
	return l.status.Failures
}

// pauseUntilWoken waits for the delay or a wake-up, and says whether the loop goes on.
func (l *Loop) pauseUntilWoken(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.wake:
	case <-l.stopping:
	}
	return !l.isStopping()
}

// pause waits for the delay, whoever wakes the loop meanwhile, and says whether the loop goes on.
func (l *Loop) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.stopping:
	}
	return !l.isStopping()
}

func (l *Loop) awaitWake() bool {
	select {
	case <-l.wake:
	case <-l.stopping:
	}
	return !l.isStopping()
}

func (l *Loop) isStopping() bool {
	select {
	case <-l.stopping:
		return true
	default:
		return false
	}
}
