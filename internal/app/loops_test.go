package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheSweeperKeepsToItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &App{lifetime: lifetime{life: t.Context()}}
		const slice = sweepTime / 5
		slices := 0
		sweep := func(rest int) func(context.Context) (bool, error) {
			return func(context.Context) (bool, error) {
				slices++
				time.Sleep(slice)
				return slices < rest, nil
			}
		}
		if err := a.forSweepTime(t.Context(), sweep(1000)); err != nil || slices != 5 {
			t.Errorf("%d slices, %v, where there is time for 5", slices, err)
		}
		slices = 0
		if err := a.forSweepTime(t.Context(), sweep(3)); err != nil || slices != 3 {
			t.Errorf("%d slices, %v, where there were 3", slices, err)
		}
	})
}

func TestStopInterruptsTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a App
		a.life, a.end = context.WithCancel(t.Context())
		slices := 0
		err := a.forSweepTime(t.Context(), func(ctx context.Context) (more bool, err error) {
			slices++
			a.end()
			<-ctx.Done() // Redis is slow
			return true, ctx.Err()
		})
		if err != nil || slices != 1 {
			t.Errorf("the sweep made %d slices and ended with %v", slices, err)
		}
	})
}

func TestSweepReportsItsFailure(t *testing.T) {
	t.Parallel()
	a := &App{lifetime: lifetime{life: t.Context()}}
	broken := errors.New("redis is broken")
	err := a.forSweepTime(t.Context(), func(context.Context) (more bool, err error) { return true, broken })
	if !errors.Is(err, broken) {
		t.Errorf("the sweep ended with %v", err)
	}
}
