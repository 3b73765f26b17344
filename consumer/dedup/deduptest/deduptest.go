// Package deduptest holds the contract of a dedup.Store as a test suite, for the stores of the SDK and for stores of
// your own.
package deduptest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/msghandler/msghandler/consumer/dedup"
)

// Run tests a store. newStore returns an empty store for each subtest, and may register cleanups on its t.
func Run(t *testing.T, newStore func(t *testing.T) dedup.Store) {
	t.Helper()
	subtests := []struct {
		name string
		run  func(*testing.T, dedup.Store)
	}{
		{"what is begun is busy", begunIsBusy},
		{"what is done stays done", doneStays},
		{"what is released is new", releasedIsNew},
		{"what is done is not released", doneIsNotReleased},
		{"done needs no begin", doneWithoutBegin},
		{"of many who begin one gets it", race},
		{"keys differ byte by byte", keys},
		{"an ended context is an error", endedContext},
	}
	for _, sub := range subtests {
		t.Run(sub.name, func(t *testing.T) { sub.run(t, newStore(t)) })
	}
}

func begin(t *testing.T, s dedup.Store, key string, want dedup.Status) {
	t.Helper()
	got, err := s.Begin(t.Context(), key)
	if got != want || err != nil {
		t.Errorf("Begin(%q) = %v, %v; want %v", key, got, err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func begunIsBusy(t *testing.T, s dedup.Store) {
	begin(t, s, "orders/1", dedup.New)
	begin(t, s, "orders/1", dedup.Busy)
}

func doneStays(t *testing.T, s dedup.Store) {
	begin(t, s, "orders/1", dedup.New)
	must(t, s.Done(t.Context(), "orders/1"))
	begin(t, s, "orders/1", dedup.Done)
	must(t, s.Done(t.Context(), "orders/1"))
	begin(t, s, "orders/1", dedup.Done)
}

func releasedIsNew(t *testing.T, s dedup.Store) {
	begin(t, s, "orders/1", dedup.New)
	must(t, s.Release(t.Context(), "orders/1"))
	must(t, s.Release(t.Context(), "orders/1"))
	begin(t, s, "orders/1", dedup.New)
}

func doneIsNotReleased(t *testing.T, s dedup.Store) {
	begin(t, s, "orders/1", dedup.New)
	must(t, s.Done(t.Context(), "orders/1"))
	must(t, s.Release(t.Context(), "orders/1"))
	begin(t, s, "orders/1", dedup.Done)
}

func doneWithoutBegin(t *testing.T, s dedup.Store) {
	must(t, s.Done(t.Context(), "orders/1"))
	begin(t, s, "orders/1", dedup.Done)
}

func race(t *testing.T, s dedup.Store) {
	var won atomic.Int32
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			status, err := s.Begin(t.Context(), "orders/1")
			if err != nil {
				t.Error(err)
			}
			if status == dedup.New {
				won.Add(1)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d got New", won.Load())
	}
}

func keys(t *testing.T, s dedup.Store) {
	long := string(make([]byte, 999))
	for _, key := range []string{"a/1", "A/1", "a/1 ", "a/01", "ä/1", "a\x00/1", "{a}/1", long + "a", long + "b"} {
		begin(t, s, key, dedup.New)
		must(t, s.Done(t.Context(), key))
	}
}

func endedContext(t *testing.T, s dedup.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Begin(ctx, "orders/1"); err == nil {
		t.Error("Begin: no error")
	}
	if err := s.Done(ctx, "orders/1"); err == nil {
		t.Error("Done: no error")
	}
	if err := s.Release(ctx, "orders/1"); err == nil {
		t.Error("Release: no error")
	}
	begin(t, s, "orders/1", dedup.New)
}
