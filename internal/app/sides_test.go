package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

func TestMarkersThatAnOwnerMayHaveLeftAreDeletedOnceMore(t *testing.T) {
	usual := halfmsg.Claim{Message: halfmsg.Message{Name: halfmsg.Name{Producer: "orders", ID: "usual"}}}
	taken, delayed := usual, usual
	taken.ID, taken.Copies = "taken over", 1
	delayed.ID, delayed.Delay = "delayed", time.Second
	left := markersLeft([]halfmsg.Claim{usual, taken, delayed})
	if len(left) != 2 || left[0].ID != "taken over" || left[1].ID != "delayed" {
		t.Errorf("left are %+v", left)
	}
}

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
