package publish

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// A broker without room gets the next message after a pause, whose end changes nothing else.
func TestAwaitEndsWithTheFullPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLife[*int](Config{Logger: slog.New(slog.DiscardHandler)}, RoutesConfig{})
		l.Connected(t.Context(), "broker", new(int))
		l.NoRoom(errors.New("full"), "")
		time.Sleep(fullAfter)
		l.NoRoom(errors.New("full"), "")
		if err := l.Ready(); !errors.Is(err, ErrBlocked) {
			t.Errorf("without room: %v", err)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := l.Await(ctx)
		if took := time.Since(began); err != nil || took < fullPause || took > fullPause+awaitEvery {
			t.Errorf("Await took %v, and returned %v", took, err)
		}
	})
}

// calls is a life with a connection.
func calls(t *testing.T) *Life[*int] {
	t.Helper()
	l := NewLife[*int](Config{Logger: slog.New(slog.DiscardHandler), Window: 2}, RoutesConfig{Unprobed: true})
	l.Connected(t.Context(), "broker", new(int))
	return l
}

// A panic of one part comes out of the call, after the outcomes of the other parts, and leaves nothing behind.
func TestPanicEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := calls(t)
		batch := []Message{{Exchange: "sound"}, {Exchange: "poison"}}
		var answered []int
		failure := lifecycle.Recovered(func() {
			l.Call(t.Context(), batch, func(places []int, _ []Result) { answered = append(answered, places...) },
				func(c *Call) (func([]int), func()) {
					return func(places []int) {
						for _, i := range places {
							if _, err := l.Admit(c); err != nil {
								t.Error(err)
							}
							if batch[i].Exchange == "poison" {
								panic("poison")
							}
							time.Sleep(time.Second)
							c.Release()
							c.Settle(i, Result{Outcome: Acked})
						}
					}, func() {}
				})
		})
		if failure == nil || failure.Value != "poison" || !slices.Equal(answered, []int{0}) || l.InFlight() != 0 {
			t.Errorf("got %v, answers to %v, %d in flight", failure, answered, l.InFlight())
		}
		if err := l.Ready(); err != nil {
			t.Errorf("after the panic: %v", err)
		}
	})
}

func TestPanicOfConnectionReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := NewLife[*int](Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, RoutesConfig{})
		panics, before := 3, lifecycle.Panics()
		l.Start(func(ctx context.Context) (string, error) {
			if panics--; panics >= 0 {
				panic("no such case")
			}
			l.Connected(ctx, "broker", new(int))
			<-ctx.Done()
			return "broker", ctx.Err()
		})
		if err := l.Await(t.Context()); err != nil || lifecycle.Panics()-before != 3 {
			t.Errorf("connected: %v, after %d panics", err, lifecycle.Panics()-before)
		}
		l.cancel()
		synctest.Wait()
		if !strings.Contains(log.String(), "the connection to the broker panicked") {
			t.Errorf("the log has %s", &log)
		}
	})
}
