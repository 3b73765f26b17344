// Package markertest holds the contract of a marker.Store as a test suite, for the stores of the SDK and for stores
// of your own.
package markertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/producer/marker"
)

// Run tests a store. open is called once or more in each subtest, and may register cleanups on its t. Each subtest
// must find an empty store. A second call of open in one subtest must open the same data if the store is Shared
// (t.Name() identifies the subtest). Differences between stores are tested as their Capabilities say, in the tests of
// these names.
func Run(t *testing.T, open func(t *testing.T) marker.Store) {
	t.Helper()
	subtests := []struct {
		name string
		run  func(*testing.T, marker.Store)
	}{
		{"absence is no verdict", absence},
		{"what was put is found", found},
		{"the first verdict stands", firstStands},
		{"putting twice changes nothing", putTwice},
		{"one verdict wins every race", race},
		{"deleting touches no other marker", deleted},
		{"a deleted id may be marked anew", markedAnew},
		{"deleting leaves a rolled-back marker", rolledBackStands},
		{"a withdrawn marker is gone", withdrawn},
		{"ids differ byte by byte", ids},
		{"a thousand at a time", thousand},
		{"nothing asked nothing answered", nothing},
		{"an ended context is an error", endedContext},
		{"DecidesFinal", decidesFinal},
		{"the identity stays", identity},
		{"a bound store answers for one identity", bound},
	}
	for _, sub := range subtests {
		t.Run(sub.name, func(t *testing.T) { sub.run(t, open(t)) })
	}
	t.Run("Shared and SurvivesRestart", func(t *testing.T) { shared(t, open) })
}

// identity may be empty. It is short, and every call reads the same.
func identity(t *testing.T, s marker.Store) {
	t.Helper()
	first, err := s.Identity(t.Context())
	if err != nil || len(first) > 16 {
		t.Fatalf("Identity: %q, %v", first, err)
	}
	put(t, s, marker.Committed, "1")
	if again, err := s.Identity(t.Context()); err != nil || again != first {
		t.Errorf("Identity: %q, and then %q, %v", first, again, err)
	}
}

func bound(t *testing.T, s marker.Store) {
	binder, ok := s.(marker.Binder)
	if !ok {
		return
	}
	own, err := s.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, marker.Committed, "stands")
	other := binder.Bound("another")
	for name, call := range map[string]func() error{
		"Lookup": func() error { _, err := other.Lookup(t.Context(), []string{"stands", "1"}, false); return err },
		"final":  func() error { _, err := other.Lookup(t.Context(), []string{"stands", "1"}, true); return err },
		"Put":    func() error { _, err := other.Put(t.Context(), []string{"1"}, marker.RolledBack); return err },
		"Delete": func() error { return other.Delete(t.Context(), []string{"stands"}) },
	} {
		if err := call(); !errors.Is(err, marker.ErrOtherStore) {
			t.Errorf("%s of another identity: %v", name, err)
		}
	}
	right := binder.Bound(own)
	expect(t, right, map[string]marker.Verdict{"stands": marker.Committed, "1": marker.Unknown})
	if standing := put(t, right, marker.RolledBack, "2"); standing["2"] != marker.RolledBack {
		t.Errorf("Put said that %v stands", standing)
	}
	remove(t, right, "stands")
	remove(t, right, "stands")
}

func put(t *testing.T, s marker.Store, v marker.Verdict, ids ...string) map[string]marker.Verdict {
	t.Helper()
	standing, err := s.Put(t.Context(), ids, v)
	if err != nil {
		t.Fatalf("Put(%q, %v): %v", ids, v, err)
	}
	return standing
}

func remove(t *testing.T, s marker.Store, ids ...string) {
	t.Helper()
	if err := s.Delete(t.Context(), ids); err != nil {
		t.Fatalf("Delete(%q): %v", ids, err)
	}
}

// expect looks ids up and compares; Unknown may be said or left out.
func expect(t *testing.T, s marker.Store, want map[string]marker.Verdict) {
	t.Helper()
	ids := make([]string, 0, len(want))
	for id := range want {
		ids = append(ids, id)
	}
	got, err := s.Lookup(t.Context(), ids, false)
	if err != nil {
		t.Fatalf("Lookup: %v", err)
	}
	for id, v := range want {
		if g := got[id]; g != v && (g.Definite() || v.Definite()) {
			t.Errorf("%q is %v, want %v", id, g, v)
		}
	}
	for id := range got {
		if _, asked := want[id]; !asked {
			t.Errorf("Lookup answered %q, which was not asked for", id)
		}
	}
}

func absence(t *testing.T, s marker.Store) {
	put(t, s, marker.Committed, "other")
	expect(t, s, map[string]marker.Verdict{"1001": marker.Unknown})
	expect(t, s, map[string]marker.Verdict{"1001": marker.Unknown})
}

func found(t *testing.T, s marker.Store) {
	standing := put(t, s, marker.Committed, "1", "2")
	if standing["1"] != marker.Committed || standing["2"] != marker.Committed {
		t.Errorf("Put said that %v stands", standing)
	}
	put(t, s, marker.RolledBack, "3")
	expect(t, s, map[string]marker.Verdict{
		"1": marker.Committed, "2": marker.Committed, "3": marker.RolledBack, "4": marker.Unknown,
	})
}

func firstStands(t *testing.T, s marker.Store) {
	put(t, s, marker.Committed, "paid")
	put(t, s, marker.RolledBack, "failed")
	got := put(t, s, marker.RolledBack, "paid", "new")
	if got["paid"] != marker.Committed || got["new"] != marker.RolledBack {
		t.Errorf("Put said that %v stands", got)
	}
	if got := put(t, s, marker.Committed, "failed"); got["failed"] != marker.RolledBack {
		t.Errorf("Put said that %v stands", got)
	}
	expect(t, s, map[string]marker.Verdict{
		"paid": marker.Committed, "failed": marker.RolledBack, "new": marker.RolledBack,
	})
}

func putTwice(t *testing.T, s marker.Store) {
	put(t, s, marker.Committed, "1", "1")
	if got := put(t, s, marker.Committed, "1"); got["1"] != marker.Committed {
		t.Errorf("Put said that %v stands", got)
	}
	expect(t, s, map[string]marker.Verdict{"1": marker.Committed})
}

func race(t *testing.T, s marker.Store) {
	for round := range 20 {
		id := fmt.Sprintf("raced-%d", round)
		verdicts := make([]marker.Verdict, 8)
		var wg sync.WaitGroup
		for i := range verdicts {
			v := marker.Committed
			if i%2 == 1 {
				v = marker.RolledBack
			}
			wg.Go(func() {
				standing, err := s.Put(t.Context(), []string{id}, v)
				if err != nil {
					t.Errorf("Put: %v", err)
				}
				verdicts[i] = standing[id]
			})
		}
		wg.Wait()
		for i, v := range verdicts {
			if !v.Definite() || v != verdicts[0] {
				t.Fatalf("caller %d got %v, caller 0 got %v", i, v, verdicts[0])
			}
		}
		expect(t, s, map[string]marker.Verdict{id: verdicts[0]})
	}
}

func deleted(t *testing.T, s marker.Store) {
	put(t, s, marker.Committed, "1", "2", "3")
	remove(t, s, "1", "3", "never there")
	remove(t, s, "1")
	got, err := s.Lookup(t.Context(), []string{"2"}, false)
	if err != nil || got["2"] != marker.Committed {
		t.Errorf("2 is %v (%v), though only 1 and 3 were deleted", got["2"], err)
	}
}

func markedAnew(t *testing.T, s marker.Store) {
	put(t, s, marker.Committed, "1")
	remove(t, s, "1")
	if got := put(t, s, marker.Committed, "1"); got["1"] != marker.Committed {
		t.Errorf("Put said that %v stands", got)
	}
}

// rolledBackStands: another run of the id may commit after the coordinator has stored ROLLED_BACK and has called
// DeleteBusiness. Only the verdict of Put can stop this run.
func rolledBackStands(t *testing.T, s marker.Store) {
	put(t, s, marker.Committed, "paid")
	put(t, s, marker.RolledBack, "failed")
	for range 2 {
		remove(t, s, "failed", "paid", "never there")
		if late := put(t, s, marker.Committed, "failed"); late["failed"] != marker.RolledBack {
			t.Fatalf("after Delete, a late commit of what rolled back is %v", late["failed"])
		}
	}
	expect(t, s, map[string]marker.Verdict{"failed": marker.RolledBack})
}

// withdrawn: a wrong rolled-back marker is taken back, and no other marker, if the store can.
func withdrawn(t *testing.T, s marker.Store) {
	withdrawer, can := s.(marker.Withdrawer)
	if !can {
		return // nothing is promised
	}
	put(t, s, marker.Committed, "paid")
	put(t, s, marker.RolledBack, "wrong", "failed")
	for range 2 {
		if err := withdrawer.Withdraw(t.Context(), []string{"wrong", "paid", "never there"}); err != nil {
			t.Fatalf("Withdraw: %v", err)
		}
	}
	expect(t, s, map[string]marker.Verdict{
		"wrong": marker.Unknown, "paid": marker.Committed, "failed": marker.RolledBack,
	})
	if got := put(t, s, marker.Committed, "wrong"); got["wrong"] != marker.Committed {
		t.Errorf("after Withdraw, Put said that %v stands", got["wrong"])
	}
}

func ids(t *testing.T, s marker.Store) {
	put(t, s, marker.Committed, "Order:7", "a.b~c_d-e")
	expect(t, s, map[string]marker.Verdict{
		"Order:7": marker.Committed, "a.b~c_d-e": marker.Committed,
		"order:7": marker.Unknown, "Order:7 ": marker.Unknown, "Order:77": marker.Unknown, "a_b~c_d-e": marker.Unknown,
	})
	alike := put(t, s, marker.RolledBack, "order:7", "Order:7 ")
	if alike["order:7"] != marker.RolledBack || alike["Order:7 "] != marker.RolledBack {
		t.Errorf("ids that look alike are taken for one: %v", alike)
	}
	expect(t, s, map[string]marker.Verdict{
		"Order:7": marker.Committed, "order:7": marker.RolledBack, "Order:7 ": marker.RolledBack,
	})
}

func thousand(t *testing.T, s marker.Store) {
	many := make([]string, 1000)
	want := make(map[string]marker.Verdict, len(many))
	for i := range many {
		many[i] = fmt.Sprintf("order-%d", i)
		want[many[i]] = marker.Committed
	}
	put(t, s, marker.Committed, many...)
	expect(t, s, want)
	remove(t, s, many...)
}

func nothing(t *testing.T, s marker.Store) {
	if got := put(t, s, marker.Committed); len(got) != 0 {
		t.Errorf("Put of nothing answered %v", got)
	}
	expect(t, s, nil)
	remove(t, s)
}

func endedContext(t *testing.T, s marker.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Put(ctx, []string{"1"}, marker.Committed); err == nil {
		t.Error("Put said nothing of its ended context")
	}
	if _, err := s.Lookup(ctx, []string{"1"}, false); err == nil {
		t.Error("Lookup said nothing of its ended context")
	}
}

func decidesFinal(t *testing.T, s marker.Store) {
	put(t, s, marker.Committed, "paid")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := s.Lookup(ctx, []string{"paid", "silent"}, true)
	if err != nil {
		t.Fatalf("Lookup: %v", err)
	}
	if got["paid"] != marker.Committed {
		t.Errorf("the marked id is %v on the final question", got["paid"])
	}
	if !s.Capabilities().DecidesFinal {
		if got["silent"].Definite() {
			t.Errorf("the store does not decide a final question, yet an id without a marker is %v", got["silent"])
		}
		return
	}
	if got["silent"] != marker.RolledBack {
		t.Errorf("an id without a marker is %v on the final question, want rolled_back", got["silent"])
	}
	if late := put(t, s, marker.Committed, "silent"); late["silent"] != marker.RolledBack {
		t.Errorf("a late commit changed a final answer to %v", late["silent"])
	}
}

func shared(t *testing.T, open func(*testing.T) marker.Store) {
	s := open(t)
	can := s.Capabilities()
	if !can.Shared && !can.SurvivesRestart {
		return // nothing is promised
	}
	put(t, s, marker.Committed, "paid")
	again := open(t)
	expect(t, again, map[string]marker.Verdict{"paid": marker.Committed})
	if got := put(t, again, marker.RolledBack, "paid"); got["paid"] != marker.Committed {
		t.Errorf("through another store the marker became %v", got["paid"])
	}
}
