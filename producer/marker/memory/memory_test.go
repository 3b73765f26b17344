package memory_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/markertest"
	"github.com/msghandler/msghandler/producer/marker/memory"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	markertest.Run(t, func(*testing.T) marker.Store { return memory.New() })
}

func TestUndeletedMarkersExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		put := func(id string) {
			if _, err := s.Put(t.Context(), []string{id}, marker.Committed); err != nil {
				t.Fatal(err)
			}
		}
		has := func(id string) bool {
			found, err := s.Lookup(t.Context(), []string{id}, false)
			return err == nil && found[id] == marker.Committed
		}
		for i := range 100 {
			put(fmt.Sprint(i))
		}
		<-time.After(memory.Retention - time.Second)
		if !has("7") {
			t.Error("a marker was forgotten before its time")
		}
		<-time.After(time.Second)
		if has("7") {
			t.Error("a marker outlived its retention")
		}
		put("new")
		if !has("new") || s.Len() != 1 {
			t.Errorf("%d markers are kept, want the new marker", s.Len())
		}
	})
}

// Rolled-back markers outlive Delete, so time and number bound them.
func TestRolledBackMarkersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		put := func(ids ...string) {
			if _, err := s.Put(t.Context(), ids, marker.RolledBack); err != nil {
				t.Fatal(err)
			}
		}
		has := func(id string) bool {
			found, err := s.Lookup(t.Context(), []string{id}, false)
			return err == nil && found[id] == marker.RolledBack
		}
		put("withdrawn", "old")
		if err := s.Withdraw(t.Context(), []string{"withdrawn"}); err != nil {
			t.Fatal(err)
		}
		<-time.After(memory.RolledBackRetention - time.Second)
		put("withdrawn")
		if !has("old") {
			t.Error("a marker was forgotten before its time")
		}
		<-time.After(time.Second)
		put("new")
		if has("old") || !has("new") || !has("withdrawn") || s.Len() != 2 {
			t.Errorf("%d markers are kept, want the two young markers", s.Len())
		}
		for i := range memory.MaxRolledBack {
			put(fmt.Sprint(i))
		}
		put("newest")
		if s.Len() > memory.MaxRolledBack || has("new") || !has("newest") {
			t.Errorf("%d markers are kept, the oldest: %v, the newest: %v", s.Len(), has("new"), has("newest"))
		}
	})
}
