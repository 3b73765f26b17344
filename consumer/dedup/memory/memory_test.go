package memory_test

import (
	"strconv"
	"testing"

	"github.com/msghandler/msghandler/consumer/dedup"
	"github.com/msghandler/msghandler/consumer/dedup/deduptest"
	"github.com/msghandler/msghandler/consumer/dedup/memory"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	deduptest.Run(t, func(*testing.T) dedup.Store { return memory.New(100) })
}

func TestLeastRecentlyUsedKeysAreForgotten(t *testing.T) {
	t.Parallel()
	s := memory.New(3)
	for i := range 3 {
		if err := s.Done(t.Context(), strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if status, _ := s.Begin(t.Context(), "0"); status != dedup.Done {
		t.Fatalf("0 is %v", status)
	}
	if err := s.Done(t.Context(), "3"); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]dedup.Status{"0": dedup.Done, "1": dedup.New, "2": dedup.Done, "3": dedup.Done} {
		if got, _ := s.Begin(t.Context(), key); got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}
