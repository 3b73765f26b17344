package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheSweeperKeepsToItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slice = sweepTime / 5
		slices := 0
		sweep := func(rest int) func(context.Context) (bool, error) {
			return func(context.Context) (bool, error) {
				slices++
				time.Sleep(slice)
				return slices < rest, nil
			}
		}
		if err := forSweepTime(t.Context(), sweep(1000)); err != nil || slices != 5 {
			t.Errorf("%d slices, %v, where there is time for 5", slices, err)
		}
		slices = 0
		if err := forSweepTime(t.Context(), sweep(3)); err != nil || slices != 3 {
			t.Errorf("%d slices, %v, where there were 3", slices, err)
		}
	})
}
