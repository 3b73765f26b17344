package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

func TestWaitReturnsWhenTheLastEnds(t *testing.T) {
	var group lifecycle.Group
	if err := group.Wait(t.Context()); err != nil {
		t.Fatalf("an empty group: %v", err)
	}
	for range 3 { // a group is used again
		var ended atomic.Int32
		release := make(chan struct{})
		for range 5 {
			group.Go(func() { <-release; ended.Add(1) })
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := group.Wait(canceled); !errors.Is(err, context.Canceled) {
			t.Fatalf("with an ended context: %v", err)
		}
		close(release)
		if err := group.Wait(t.Context()); err != nil || ended.Load() != 5 {
			t.Fatalf("%d of 5 have ended, %v", ended.Load(), err)
		}
	}
}

// Invariant: Wait never returns nil while work that began before it runs.
func TestManyMayStartAndWait(t *testing.T) {
	var group lifecycle.Group
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				var done atomic.Bool
				group.Go(func() { done.Store(true) })
				if err := group.Wait(t.Context()); err != nil || !done.Load() {
					t.Errorf("waited for: done is %t, %v", done.Load(), err)
				}
			}
		})
	}
	all.Wait()
}

func TestPanicsBecomeErrors(t *testing.T) {
	cause := errors.New("cause")
	failure := lifecycle.Recovered(func() { panic(cause) })
	if failure == nil || !errors.Is(failure, cause) || !strings.Contains(string(failure.Stack), "lifecycle_test.go") {
		t.Fatalf("the panic became %v", failure)
	}
	if again := lifecycle.Recovered(func() { panic(failure) }); again != failure {
		t.Errorf("raised again the panic became %v", again)
	}
	if failure := lifecycle.Recovered(func() {}); failure != nil {
		t.Errorf("without a panic: %v", failure)
	}
}
