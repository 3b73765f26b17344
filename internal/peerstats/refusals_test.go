package peerstats

import (
	"fmt"
	"testing"
	"time"
)

func TestRefusalsAreLoggedOnceMinuteEach(t *testing.T) {
	t.Parallel()
	var r Refusals
	began := time.Unix(1e9, 0)
	for _, c := range []struct {
		producer, reason string
		after            time.Duration
		unlogged         int64
		due              bool
	}{
		{"orders", "CALLBACK_FORBIDDEN", 0, 1, true},
		{"orders", "CALLBACK_FORBIDDEN", time.Second, 0, false},
		{"orders", "CALLER_FORBIDDEN", time.Second, 1, true},
		{"stock", "CALLBACK_FORBIDDEN", 2 * time.Second, 1, true},
		{"orders", "CALLBACK_FORBIDDEN", 59 * time.Second, 0, false},
		{"orders", "CALLBACK_FORBIDDEN", time.Minute, 3, true},
		{"", "CALLER_FORBIDDEN", time.Minute, 1, true},
	} {
		unlogged, due := r.Add(c.producer, c.reason, "cause", began.Add(c.after))
		if unlogged != c.unlogged || due != c.due {
			t.Errorf("%+v: got %d, %t", c, unlogged, due)
		}
	}
	all := r.All()
	if len(all) != 4 || all[0].Producer != Nameless || all[1].Producer != "orders" || all[1].Count != 4 ||
		!all[1].FirstAt.Equal(began) || !all[1].LastAt.Equal(began.Add(time.Minute)) {
		t.Errorf("remembered are %+v", all)
	}
}

// A caller with ever new names takes a bounded number of entries, and not for good.
func TestRefusalEntriesAreBounded(t *testing.T) {
	t.Parallel()
	var r Refusals
	now := time.Unix(1e9, 0)
	logged := 0
	for i := range 10_000 {
		if _, due := r.Add(fmt.Sprint("stranger-", i), "CALLER_FORBIDDEN", "cause", now); due {
			logged++
		}
	}
	all := r.All()
	if len(all) != MaxNamed+1 || logged != MaxNamed+1 {
		t.Errorf("%d lines are kept and %d were logged", len(all), logged)
	}
	if shared := all[0]; shared.Producer != Other || shared.Count != 10_000-MaxNamed {
		t.Errorf("the shared line is %+v", shared)
	}
	now = now.Add(forgetAfter + time.Second)
	r.Add("orders", "CALLBACK_FORBIDDEN", "cause", now)
	if all = r.All(); len(all) != 1 || all[0].Producer != "orders" {
		t.Errorf("an hour later %d lines are kept: %+v", len(all), all[0])
	}
}
