// Package loop runs, wakes, backs off and stops every periodic worker.
//
// A worker writes only its pass, which does the work that is due and returns; tests call the pass directly. The Loop
// owns the rest: the time of the next pass, the backoff after an error, and the end of the worker.
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

// failureInterval is how often a lasting failure of the passes is logged: each pass of an outage would be too often.
const failureInterval = time.Minute

// DefaultTimeout bounds a pass when Config.Timeout is zero.
const DefaultTimeout = time.Minute

// Config describes the pass and the schedule of a Loop.
type Config struct {
	// Name names the loop in logs. Required.
	Name string
	// Schedule is when passes begin: a cron spec of five fields in UTC, or "@every 1s"; parts of a second are fine.
	// Required.
	Schedule string
	// Timeout bounds the context of one pass. Default DefaultTimeout.
	Timeout time.Duration
	// Pass does the work that is due and returns. more says that more work can be done now: the next pass then follows at
	// once. Passes never overlap. Required.
	Pass func(ctx context.Context) (more bool, err error)
	// Backoff is the wait after a failed pass that follows so many failed passes; neither the schedule nor Wake end the
	// wait early. The waits should grow, be jittered and have a cap. Required.
	Backoff func(failures int) time.Duration
	// Logger gets failed passes: the first after a success, and then one a minute. Default slog.Default().
	Logger *slog.Logger
}

// Status is how a Loop has fared.
type Status struct {
	// Passes counts the passes so far, failed ones included.
	Passes int64
	// LastSuccessAt is when a pass last ended without an error; zero before the first.
	LastSuccessAt time.Time
	// LastErrorAt and LastError describe the last failed pass, also after later passes have succeeded.
	LastErrorAt time.Time
	LastError   error
	// Failures counts the consecutive failed passes; a success resets the count.
	Failures int
}

// Loop runs passes one after another, on a schedule and when woken. The methods may be called concurrently.
type Loop struct {
	config   Config
	schedule cron.Schedule
	now      func() time.Time // in UTC
	// wake holds at most one token, so any number of wake-ups during a pass make one further pass.
	wake chan struct{}
	// stopping is closed when no further pass may begin.
	stopping chan struct{}
	// running has the goroutine that makes the passes.
	running lifecycle.Group
	// passes is the context of all passes; cancel ends it when a stop cannot wait any longer.
	passes context.Context
	cancel context.CancelFunc
	// loggedAt is when a failed pass was last logged.
	loggedAt time.Time

	mu      sync.Mutex
	started bool
	stopped bool
	status  Status
}

// New returns a Loop that does not run yet. New fails when a required field is missing or the schedule is not valid.
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
		now:      func() time.Time { return time.Now().UTC() },
		wake:     make(chan struct{}, 1),
		stopping: make(chan struct{}),
	}
	l.passes, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

// Start begins to run passes. The first pass comes after a random part of the time until the schedule's first tick, so
// instances that start together do not work in step. Further calls, and calls after Stop, do nothing.
func (l *Loop) Start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started || l.stopped {
		return
	}
	l.started = true
	l.running.Go(l.run)
}

// Wake asks for a pass now: at once when the loop is idle, right after the running pass otherwise. Wake never blocks,
// and any number of calls before the pass make one pass.
func (l *Loop) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Stop lets the running pass end and begins no other. When ctx ends first, the pass's context is cancelled and Stop
// returns the context's error without waiting any longer. Stop may be called repeatedly, and before Start.
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
	l.running.Go(l.tick)
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

// tick wakes the loop at each tick of the schedule. The monotonic clock measures the wait for a tick: a clock that is
// set back must not stop the passes.
func (l *Loop) tick() {
	for {
		now := l.now()
		if !l.pause(l.schedule.Next(now).Sub(now)) {
			return
		}
		l.Wake()
	}
}

func (l *Loop) firstDelay() time.Duration {
	now := l.now()
	return rand.N(max(l.schedule.Next(now).Sub(now), 1)) //nolint:gosec // jitter is no secret
}

// pass makes a pass and records the result.
func (l *Loop) pass() (more bool, err error) {
	ctx, cancel := context.WithTimeout(l.passes, l.config.Timeout)
	defer cancel()
	more, err = l.recovered(ctx)
	failures := l.record(err)
	if err != nil && (failures == 1 || time.Since(l.loggedAt) >= failureInterval) {
		l.loggedAt = time.Now()
		l.config.Logger.Warn("a pass failed: its work waits, and the loop tries again; look after the server in the cause",
			"loop", l.config.Name, "failures", failures, "cause", err)
	}
	return more, err
}

// recovered turns a panic of the pass into an error with the stack.
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

// pause waits for the delay, in spite of wake-ups, and says whether the loop goes on.
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
