package loop_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/internal/loop"
	"github.com/msghandler/msghandler/test/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type pass = func(ctx context.Context) (bool, error)

// running starts a loop in the test's bubble; it is stopped with the test.
func running(t *testing.T, schedule string, do pass) *loop.Loop {
	t.Helper()
	l, err := loop.New(loop.Config{
		Name: "test", Schedule: schedule, Pass: do, Timeout: 10 * time.Second,
		Backoff: func(failures int) time.Duration { return min(time.Duration(failures+1)*10*time.Second, time.Minute) },
		Logger:  slog.New(slog.DiscardHandler),
	})
	must.Succeed(t, err)
	l.Start()
	t.Cleanup(func() {
		if err := l.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
	return l
}

func sleepAndSettle(d time.Duration) {
	time.Sleep(d) // fake time: every test here runs in a bubble
	synctest.Wait()
}

func TestPassesFollowTheSchedule(t *testing.T) {
	for schedule, want := range map[string]int64{"@every 1s": 60, "@every 250ms": 240, "*/1 * * * *": 1} {
		synctest.Test(t, func(t *testing.T) {
			var passes atomic.Int64
			running(t, schedule, func(context.Context) (bool, error) { passes.Add(1); return false, nil })
			sleepAndSettle(time.Minute)
			if got := passes.Load(); got < want-1 || got > want+1 {
				t.Errorf("%s: %d passes in a minute, want about %d", schedule, got, want)
			}
		})
	}
}

// The wall clock is set back while the loop waits for a tick.
func TestPassesSurviveClockSetBack(t *testing.T) {
	for schedule, want := range map[string]int64{"@every 1s": 600, "*/1 * * * *": 10} {
		synctest.Test(t, func(t *testing.T) {
			var passes, back atomic.Int64
			l, err := loop.New(loop.Config{
				Name: "test", Schedule: schedule, Backoff: func(int) time.Duration { return time.Second },
				Pass: func(context.Context) (bool, error) { passes.Add(1); return false, nil },
			})
			must.Succeed(t, err)
			l.SetNow(func() time.Time { return time.Now().UTC().Add(-time.Duration(back.Load())) })
			l.Start()
			sleepAndSettle(2 * time.Minute)
			back.Store(int64(2 * time.Hour))
			before := passes.Load()
			sleepAndSettle(10 * time.Minute)
			if got := passes.Load() - before; got < want-1 || got > want+1 {
				t.Errorf("%s: %d passes in ten minutes, want about %d", schedule, got, want)
			}
			if err := l.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFirstPassComesAtRandomTime(t *testing.T) {
	low, high := time.Hour, time.Duration(0)
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			begun, first := time.Now(), make(chan time.Time, 1)
			running(t, "@every 1h", func(context.Context) (bool, error) {
				select {
				case first <- time.Now():
				default:
				}
				return false, nil
			})
			after := (<-first).Sub(begun)
			low, high = min(low, after), max(high, after)
		})
	}
	if high > time.Hour || high-low < 20*time.Minute {
		t.Errorf("first passes after %v to %v, want passes spread over the hour", low, high)
	}
}

func TestMoreWorkMakesAnotherPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passes atomic.Int64
		l := running(t, "@every 1h", func(context.Context) (bool, error) { return passes.Add(1) < 5, nil })
		l.Wake()
		synctest.Wait()
		if got := passes.Load(); got != 5 {
			t.Errorf("%d passes, want 5 in a row", got)
		}
	})
}

func TestWakeUpsDuringPassAddOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passes atomic.Int64
		gate := make(chan struct{})
		l := running(t, "@every 1h", func(context.Context) (bool, error) { passes.Add(1); <-gate; return false, nil })
		l.Wake()
		synctest.Wait()
		for range 100 {
			l.Wake()
		}
		close(gate)
		synctest.Wait()
		if got := passes.Load(); got != 2 {
			t.Errorf("%d passes, want 2", got)
		}
	})
}

func TestErrorsAreBackedOffUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("away")
		var at []time.Time
		l := running(t, "@every 1s", func(context.Context) (bool, error) {
			if at = append(at, time.Now()); len(at) <= 3 {
				return true, broken
			}
			return false, nil
		})
		for range 40 {
			l.Wake() // does not cut a backoff short
			sleepAndSettle(time.Second)
		}
		if status := l.Status(); status.Failures != 3 || !errors.Is(status.LastError, broken) {
			t.Errorf("status is %+v after three failures", status)
		}
		sleepAndSettle(time.Minute)
		for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
			if got := at[i+1].Sub(at[i]); got != want {
				t.Errorf("pass %d came %v after the pass before, want %v", i+1, got, want)
			}
		}
		if got := at[len(at)-1].Sub(at[len(at)-2]); got != time.Second {
			t.Errorf("after a success passes come every %v", got)
		}
		if status := l.Status(); status.Failures != 0 || status.LastSuccessAt.IsZero() {
			t.Errorf("status is %+v after a success", status)
		}
	})
}

// An outage is a line at its begin, and then a line a minute.
func TestLastingFailureIsLoggedEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		var healthy atomic.Bool
		l, err := loop.New(loop.Config{
			Name: "test", Schedule: "@every 1s", Backoff: func(int) time.Duration { return 10 * time.Second },
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Pass: func(context.Context) (bool, error) {
				if healthy.Load() {
					return false, nil
				}
				return false, errors.New("away")
			},
		})
		must.Succeed(t, err)
		l.Start()
		sleepAndSettle(115 * time.Second)
		healthy.Store(true)
		sleepAndSettle(15 * time.Second)
		healthy.Store(false) // another outage
		sleepAndSettle(5 * time.Second)
		if err := l.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if lines := strings.Count(log.String(), "a pass failed: "); lines != 3 {
			t.Errorf("%d lines of two outages, the first of two minutes:\n%s", lines, log.String())
		}
	})
}

func TestPanicIsErrorWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passes atomic.Int64
		l := running(t, "@every 1s", func(context.Context) (bool, error) {
			if passes.Add(1) == 1 {
				panic("oops")
			}
			return false, nil
		})
		sleepAndSettle(5 * time.Second)
		if err := l.Status().LastError; err == nil || !strings.Contains(err.Error(), "oops") ||
			!strings.Contains(err.Error(), "loop_test.go") {
			t.Errorf("last error is %v", err)
		}
		sleepAndSettle(time.Minute)
		if passes.Load() < 10 {
			t.Error("the loop did not go on after a panic")
		}
	})
}

func TestAPassHasATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, "@every 1s", func(ctx context.Context) (bool, error) { <-ctx.Done(); return false, ctx.Err() })
		l.Wake()
		sleepAndSettle(11 * time.Second)
		if err := l.Status().LastError; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("last error is %v", err)
		}
	})
}

func TestStopWaitsForTheRunningPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun, ended atomic.Int64
		gate := make(chan struct{})
		l := running(t, "@every 1s", func(ctx context.Context) (bool, error) {
			begun.Add(1)
			<-gate
			ended.Add(1)
			return true, ctx.Err()
		})
		sleepAndSettle(5 * time.Second)
		stopped := make(chan error, 1)
		go func() { stopped <- l.Stop(t.Context()) }()
		sleepAndSettle(time.Second)
		if len(stopped) > 0 {
			t.Fatal("Stop did not wait for the pass")
		}
		close(gate)
		must.Succeed(t, <-stopped)
		sleepAndSettle(time.Minute)
		if begun.Load() != 1 || ended.Load() != 1 || l.Status().LastError != nil {
			t.Errorf("%d passes begun, %d ended, status %+v", begun.Load(), ended.Load(), l.Status())
		}
	})
}

func TestStopCancelsPassAfterItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, "@every 1s", func(ctx context.Context) (bool, error) { <-ctx.Done(); return false, ctx.Err() })
		l.Wake()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop returned %v", err)
		}
		synctest.Wait()
		if err := l.Status().LastError; !errors.Is(err, context.Canceled) {
			t.Errorf("the pass ended with %v", err)
		}
	})
}

func TestStopBeforeStart(t *testing.T) {
	l, err := loop.New(loop.Config{
		Name: "test", Schedule: "@every 1s", Backoff: func(int) time.Duration { return time.Second },
		Pass: func(context.Context) (bool, error) { t.Error("a pass"); return false, nil },
	})
	must.Succeed(t, err)
	if err := l.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	l.Start()
	if err := l.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSchedules(t *testing.T) {
	for _, good := range []string{"@every 1s", "@every 50ms", "@hourly", "*/5 * * * *", "0 3 * * 1"} {
		if err := loop.ParseSchedule(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "1s", "@every", "@every x", "@every 0s", "@every -1s", "* * * *", "0 0 31 2 *"} {
		if err := loop.ParseSchedule(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if _, err := loop.New(loop.Config{Schedule: "@every 1s"}); err == nil {
		t.Error("a loop without name, pass and backoff was taken")
	}
}
