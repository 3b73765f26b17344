package sendloop

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
)

// What an outage has left comes in portions, each of which is worked off before the next: that is one backlog, not
// many.
func TestABacklogThatDoesNotEndStopsGivingWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue{share: 10}
		portion := func() (first int) {
			q.add(make([]delivery.Leased, 1))
			q.take(100)
			backlog := make([]delivery.Leased, 100)
			for i := range backlog {
				backlog[i].Backlog = true
			}
			q.add(backlog)
			for {
				batch := q.take(100)
				if len(batch) == 0 {
					return first
				}
				first = max(first, len(batch))
				q.sent(batch[0].Backlog)
				q.done(batch[0].Backlog)
			}
		}
		for begun := time.Now(); time.Since(begun) < patience; time.Sleep(lull) {
			if got := portion(); got != 10 {
				t.Errorf("after %v it fills a batch of %d, want a share of 10", time.Since(begun), got)
			}
		}
		if got := portion(); got != 100 {
			t.Errorf("after %v it fills a batch of %d, want 100", patience, got)
		}
		time.Sleep(lull + time.Nanosecond)
		if got := portion(); got != 10 {
			t.Errorf("another one fills a batch of %d, want a share of 10", got)
		}
	})
}

// When a backlog has given way for long enough, it has each second batch, however much fresh traffic there is.
func TestABacklogThatGaveWayHasEachSecondBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue{share: 1}
		backlog := make([]delivery.Leased, 100)
		for i := range backlog {
			backlog[i].Backlog = true
		}
		q.add(backlog)
		time.Sleep(patience)
		q.add(make([]delivery.Leased, 100))
		var of []bool
		for range 6 {
			batch := q.take(10)
			if len(batch) != 10 {
				t.Fatalf("a batch of %d", len(batch))
			}
			of = append(of, batch[0].Backlog)
		}
		if want := []bool{false, true, false, true, false, true}; !slices.Equal(of, want) {
			t.Errorf("batches of the backlog: %v, want %v", of, want)
		}
	})
}
