package app

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// aged are messages by age and confirm_after, the oldest first, with a message on each page.
type aged struct {
	all   [][2]time.Duration
	reads int
	takes time.Duration
	err   error
}

func (a *aged) list(_ context.Context, q halfmsg.Query) (page halfmsg.Page, err error) {
	if q.State != halfmsg.Pending || q.MinAge != overdueAge || a.err != nil {
		return page, errors.Join(a.err, fmt.Errorf("asked for %+v", q))
	}
	a.reads++
	time.Sleep(a.takes) // of the bubble
	at := 0
	_, _ = fmt.Sscan(q.Cursor, &at)
	if at < len(a.all) {
		m := a.all[at]
		page.Records = []halfmsg.Record{{Message: halfmsg.Message{ConfirmAfter: m[1]}, CreatedAt: time.Now().Add(-m[0])}}
	}
	if at+1 < len(a.all) {
		page.Next = fmt.Sprint(at + 1)
	}
	return page, nil
}

// A message may be old because its producer set a long confirm_after, while the verdict of a younger message is long
// overdue.
func TestOverdueDecisionsAreFound(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	for name, c := range map[string]struct {
		all   [][2]time.Duration
		want  time.Duration
		reads int
	}{
		"none":                   {nil, 0, 1},
		"not yet to be asked":    {[][2]time.Duration{{23 * h, 24 * h}, {3 * h, 4 * h}}, 0, 2},
		"behind one that may be": {[][2]time.Duration{{23 * h, 24 * h}, {3 * h, h}, {h, 0}}, 2 * h, 3},
		// All messages after the second are younger.
		"enough": {[][2]time.Duration{{23 * h, 20 * h}, {8 * h, h}, {6 * h, 0}, {5 * h, 0}, {4 * h, 0}}, 7 * h, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &aged{all: c.all}
			u := &overdue{list: a.list, inPart: func() bool { return false }}
			for range 2 { // the second walk begins anew
				a.reads = 0
				if longest, whole, err := u.pass(t.Context()); err != nil || !whole || longest != c.want || a.reads != c.reads {
					t.Errorf("%s: %s, whole %t, after %d pages, %v; want %s after %d", name, longest, whole, a.reads, err, c.want,
						c.reads)
				}
			}
		})
	}
}

func TestUndecidedScanContinuesWhereItStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &aged{takes: overdueTime / 2, all: [][2]time.Duration{
			{9 * time.Hour, 8 * time.Hour}, {8 * time.Hour, 8 * time.Hour}, {7 * time.Hour, 7 * time.Hour},
		}}
		u := &overdue{list: a.list, inPart: func() bool { return false }}
		if _, whole, err := u.pass(t.Context()); whole || err != nil || a.reads != 2 {
			t.Errorf("after %d pages: whole %t, %v", a.reads, whole, err)
		}
		a.err = halfmsg.ErrUnavailable
		if _, whole, err := u.pass(t.Context()); whole || !errors.Is(err, halfmsg.ErrUnavailable) {
			t.Errorf("without Redis: whole %t, %v", whole, err)
		}
		a.err = nil
		if longest, whole, err := u.pass(t.Context()); !whole || err != nil || a.reads != 3 ||
			longest.Round(time.Second) != time.Hour {
			t.Errorf("after %d pages: %s, whole %t, %v", a.reads, longest, whole, err)
		}
	})
}

// While a master of a Redis Cluster is away, its messages are not read. They are overdue as before.
func TestOverdueOutlivesASilentMaster(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	synctest.Test(t, func(t *testing.T) {
		a, away := &aged{}, false
		u := &overdue{list: a.list, inPart: func() bool { return away }}
		for _, look := range []struct {
			age, want time.Duration
			away      bool
		}{{3 * h, 3 * h, false}, {h, 3 * h, true}, {4 * h, 4 * h, true}, {h, h, false}} {
			a.all, away = [][2]time.Duration{{look.age, 0}}, look.away
			if longest, whole, err := u.pass(t.Context()); longest != look.want || !whole || err != nil {
				t.Errorf("%+v: overdue for %v, whole: %v, %v", look, longest, whole, err)
			}
		}
	})
}
