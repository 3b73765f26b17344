package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/must"
)

// newIdle is a coordinator with only its listeners and its console open.
func newIdle(t *testing.T) *App {
	t.Helper()
	settings := config.Default()
	settings.GRPC.Addr, settings.HTTP.Addr, settings.Shutdown.Grace = "127.0.0.1:0", "127.0.0.1:0", 20*time.Second
	a, err := New(t.Context(), settings, Deps{Logger: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	return a
}

func TestPartsAreClosedInReverse(t *testing.T) {
	t.Parallel()
	a := newIdle(t)
	var order []string
	for _, name := range []string{"redis", "publisher", "loops", "grpc"} {
		a.closeWith(closer{name: name, close: func(context.Context) error {
			order = append(order, name)
			return nil
		}})
	}
	must.Succeed(t, a.Stop(t.Context()))
	if want := []string{"grpc", "loops", "publisher", "redis"}; !slices.Equal(order, want) {
		t.Errorf("closed %v", order)
	}
}

func TestHangingPartLeavesTimeToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		var left time.Duration
		parts := []closer{
			{name: "publisher", close: func(ctx context.Context) error {
				end, _ := ctx.Deadline()
				left = time.Until(end)
				return nil
			}},
			{name: "confirm side", share: 0.5, close: hang},
			{name: "grpc", share: 0.5, close: hang},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err := closeAll(ctx, parts)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != 15*time.Second || left != 5*time.Second {
			t.Errorf("took %s, left %s", took, left)
		}
	})
}

// A stop ends within its grace even if a part does not return when closed.
func TestStopEndsWithoutAHangingPart(t *testing.T) {
	t.Parallel()
	a := newIdle(t)
	a.settings.Shutdown.Grace = 50 * time.Millisecond
	gate, returned := make(chan struct{}), make(chan struct{})
	a.serve("stuck", func() error {
		defer close(returned)
		<-gate
		return nil
	})
	stopped := make(chan error, 1)
	go func() { stopped <- a.Stop(t.Context()) }()
	select {
	case err := <-stopped:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the stop waits for the part")
	}
	close(gate)
	<-returned
}

// Every part hangs until its time has ended, and then takes some more to return. The stop ends within the grace.
func TestSlowPartsStopWithinTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const grace = 10 * time.Second
		var parts []closer
		for range 8 {
			parts = append(parts, closer{name: "store", close: func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(50 * time.Millisecond)
				return ctx.Err()
			}})
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), withinGrace(grace))
		defer cancel()
		if err := closeAll(ctx, parts); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed with %v", err)
		}
		if took := time.Since(began); took >= grace {
			t.Errorf("the parts took %s", took)
		}
	})
}
