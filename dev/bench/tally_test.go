package bench

import (
	"testing"
	"time"
)

func TestBalanceCountsEachMismatch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		deliver []string
		want    Balance
		even    bool
	}{
		"all of it":         {[]string{"b-0", "b-1"}, Balance{Delivered: 2}, true},
		"twice":             {[]string{"b-0", "b-1", "b-0", "b-0"}, Balance{Delivered: 2, Copies: 2}, true},
		"one is missing":    {[]string{"b-0"}, Balance{Delivered: 1, Lost: 1}, false},
		"one too many":      {[]string{"b-0", "b-1", "b-2"}, Balance{Delivered: 2, Ghosts: 1}, false},
		"of another run":    {[]string{"b-0", "b-1", "a-1"}, Balance{Delivered: 2, Alien: 1}, false},
		"of no number":      {[]string{"b-0", "b-1", "b-x"}, Balance{Delivered: 2, Alien: 1}, false},
		"of a number ahead": {[]string{"b-0", "b-1", "b-4"}, Balance{Delivered: 2, Alien: 1}, false},
		"never begun":       {[]string{"b-0", "b-1", "b-3"}, Balance{Delivered: 2, Ghosts: 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books := &tally{prefix: "b-"}
			for _, f := range []fate{committed, silent, rolledBack, committed} {
				books.begin(f)
			}
			books.refused(3)
			for _, id := range tc.deliver {
				books.deliver(id)
			}
			tc.want.Committed, tc.want.Silent, tc.want.RolledBack = 2, 1, 2
			if got := books.balance(); got != tc.want || got.Even() != tc.even {
				t.Errorf("got %+v, even %t; want %+v", got, got.Even(), tc.want)
			}
		})
	}
}

func TestFatesFollowTheShares(t *testing.T) {
	t.Parallel()
	books := &tally{prefix: "b-"}
	for range 200 {
		books.plan(0.1, 0.25)
	}
	b := books.balance()
	if b.Silent < 18 || b.Silent > 22 || b.RolledBack < 48 || b.RolledBack > 52 {
		t.Errorf("of 200, %d were silent and %d rolled back; want 20 and 50", b.Silent, b.RolledBack)
	}
}

func TestDeliveryIsTimedOnce(t *testing.T) {
	t.Parallel()
	books := &tally{prefix: "b-"}
	n, at := books.begin(committed), time.Now()
	books.submit(n, at)
	if first, second := books.deliver("b-0"), books.deliver("b-0"); !first.Equal(at) || !second.IsZero() {
		t.Errorf("timed from %v and %v, want %v and nothing", first, second, at)
	}
}
