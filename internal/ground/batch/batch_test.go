package batch_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/msghandler/msghandler/internal/ground/batch"
)

func double(_ context.Context, items []int) []int {
	out := make([]int, len(items))
	for i, n := range items {
		out[i] = 2 * n
	}
	return out
}

func TestResultsComeInTheCallsOrder(t *testing.T) {
	g := batch.New(batch.Config{Max: 2, Parallel: 3, Waiting: 100, Timeout: time.Second}, double)
	got, err := g.Do(t.Context(), 1, 2, 3, 4, 5)
	if err != nil || !slices.Equal(got, []int{2, 4, 6, 8, 10}) {
		t.Fatalf("got %v, %v", got, err)
	}
}

func TestCallsDuringBatchShareNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		gate := make(chan struct{})
		g := batch.New(batch.Config{Max: 100, Parallel: 1, Waiting: 100, Timeout: time.Hour},
			func(ctx context.Context, items []int) []int {
				sizes = append(sizes, len(items))
				<-gate
				return double(ctx, items)
			})
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() { _, _ = g.Do(t.Context(), i) })
			synctest.Wait()
		}
		close(gate)
		wg.Wait()
		if !slices.Equal(sizes, []int{1, 9}) {
			t.Fatalf("batches of %v, want batches of 1 and 9", sizes)
		}
	})
}

// On a busy machine ready calls bring items for the same batch.
func TestReadyCallsShareTheFirstBatch(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so busy that goroutines wait for each other
	const rounds, calls = 100, 10
	var batches atomic.Int64
	g := batch.New(batch.Config{Max: calls, Parallel: 2, Waiting: calls, Timeout: time.Minute},
		func(ctx context.Context, items []int) []int {
			batches.Add(1)
			return double(ctx, items)
		})
	for range rounds {
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() { _, _ = g.Do(t.Context(), i) })
		}
		wg.Wait()
	}
	// The scheduler takes things out of turn now and then.
	if n := batches.Load(); n > rounds*3/2 {
		t.Errorf("%d batches for %d rounds of %d calls", n, rounds, calls)
	}
}

func TestWaitingItemsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		g := batch.New(batch.Config{Max: 1, Parallel: 1, Waiting: 2, Timeout: time.Hour},
			func(ctx context.Context, items []int) []int {
				<-gate
				return double(ctx, items)
			})
		var wg sync.WaitGroup
		for i := range 3 { // one in flight, two waiting
			wg.Go(func() { _, _ = g.Do(t.Context(), i) })
			synctest.Wait()
		}
		if _, err := g.Do(t.Context(), 9); !errors.Is(err, batch.ErrBusy) {
			t.Fatalf("got %v, want ErrBusy", err)
		}
		close(gate)
		wg.Wait()
	})
}

func TestALeavingCallerCancelsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		g := batch.New(batch.Config{Max: 10, Parallel: 1, Waiting: 10, Timeout: time.Hour},
			func(ctx context.Context, items []int) []int {
				<-gate
				if ctx.Err() != nil {
					t.Error("the batch was cancelled with its caller")
				}
				return double(ctx, items)
			})
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { _, err := g.Do(ctx, 1); left <- err }()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		close(gate)
		if got, err := g.Do(t.Context(), 4); err != nil || got[0] != 8 {
			t.Fatalf("got %v, %v", got, err)
		}
	})
}

// A server that counts what a caller holds must be able to rely on nothing being held when the caller has left.
func TestItemsOfLeftCallerAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var done []int
		g := batch.New(batch.Config{Max: 2, Parallel: 1, Waiting: 10, Timeout: time.Hour, Counting: t.Context()},
			func(ctx context.Context, items []int) []int {
				<-gate
				done = append(done, items...)
				return double(ctx, items)
			})
		ctx, cancel := context.WithCancel(t.Context())
		left, waited := make(chan error, 1), make(chan error, 1)
		go func() { _, err := g.Do(ctx, 1, 2, 3, 4); left <- err }() // two are under way, two wait
		synctest.Wait()
		go func() { _, err := g.Do(ctx, 5, 6); waited <- err }()
		stays := make(chan []int, 1)
		go func() { got, _ := g.Do(t.Context(), 7); stays <- got }()
		synctest.Wait()
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Errorf("whose items all waited got %v", err)
		}
		synctest.Wait()
		if g.Waiting() != 1 {
			t.Errorf("%d items wait, want the item whose caller is there", g.Waiting())
		}
		select {
		case <-left:
			t.Error("a caller was let go while its items were under way")
		default:
		}
		close(gate)
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("whose items were under way got %v", err)
		}
		if got := <-stays; !slices.Equal(got, []int{14}) || !slices.Equal(done, []int{1, 2, 7}) {
			t.Errorf("the caller who stayed got %v; done were %v", got, done)
		}
	})
}

// No item of a caller that leaves is kept, and the waiting items of other callers keep their places.
func TestOneOfManyCallersIsDropped(t *testing.T) {
	gate, begun := make(chan struct{}), make(chan struct{}, 9)
	g := batch.New(batch.Config{Max: 1, Parallel: 1, Waiting: 4, Timeout: time.Hour, Counting: t.Context()},
		func(_ context.Context, items []*[1 << 16]byte) []int {
			begun <- struct{}{}
			<-gate
			return make([]int, len(items))
		})
	var calls sync.WaitGroup
	for i := range 4 { // one in flight, three waiting
		calls.Go(func() { _, _ = g.Do(t.Context(), new([1 << 16]byte)) })
		if i == 0 {
			<-begun
		}
	}
	wait(t, "three wait", func() bool { return g.Waiting() == 3 })
	ctx, cancel := context.WithCancel(t.Context())
	item := weak.Pointer[[1 << 16]byte]{}
	left := make(chan error)
	func() {
		body := new([1 << 16]byte)
		item = weak.Make(body)
		go func() { _, err := g.Do(ctx, body); left <- err }()
	}()
	wait(t, "four wait", func() bool { return g.Waiting() == 4 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) || g.Waiting() != 3 {
		t.Errorf("got %v; %d wait", err, g.Waiting())
	}
	wait(t, "its item is let go", func() bool { runtime.GC(); return item.Value() == nil })
	close(gate)
	calls.Wait()
	for range 4 { // there is room for as many as before
		if _, err := g.Do(t.Context(), new([1 << 16]byte)); err != nil || g.Waiting() != 0 {
			t.Errorf("got %v; %d wait", err, g.Waiting())
		}
	}
}

// wait waits for a condition.
func wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestNoLaneWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		g := batch.NewInLanes(batch.Config{Max: 10, Parallel: 1, Waiting: 10, Timeout: time.Hour},
			func(item int) string { return fmt.Sprint(item < 0) },
			func(ctx context.Context, items []int) []int {
				if items[0] < 0 {
					<-gate
				}
				return double(ctx, items)
			})
		mixed := make(chan []int, 1)
		go func() { got, _ := g.Do(t.Context(), 1, -1, 2); mixed <- got }()
		synctest.Wait()
		if got, err := g.Do(t.Context(), 3); err != nil || got[0] != 6 {
			t.Errorf("got %v, %v", got, err)
		}
		go func() { _, _ = g.Do(t.Context(), slices.Repeat([]int{-1}, 10)...) }()
		synctest.Wait()
		if got, err := g.Do(t.Context(), 4); err != nil || got[0] != 8 {
			t.Errorf("with a full lane beside got %v, %v", got, err)
		}
		if _, err := g.Do(t.Context(), 5, -1); !errors.Is(err, batch.ErrBusy) || g.Waiting() != 10 {
			t.Errorf("for a full lane got %v; %d wait", err, g.Waiting())
		}
		close(gate)
		if got := <-mixed; !slices.Equal(got, []int{2, -2, 4}) {
			t.Errorf("got %v", got)
		}
	})
}

// Whose callers leave gives back the room of each of its lanes.
func TestLeftCallerFreesEachLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		g := batch.NewInLanes(batch.Config{Max: 1, Parallel: 1, Waiting: 2, Timeout: time.Hour, Counting: t.Context()},
			func(item int) string { return fmt.Sprint(item < 0) },
			func(ctx context.Context, items []int) []int { <-gate; return double(ctx, items) })
		go func() { _, _ = g.Do(t.Context(), 1, -1) }() // both are in flight
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = g.Do(ctx, 2, -2, 3, -3) }()
		synctest.Wait()
		for _, item := range []int{4, -4} {
			if _, err := g.Do(t.Context(), item); !errors.Is(err, batch.ErrBusy) || g.Waiting() != 4 {
				t.Errorf("in a full lane %d got %v; %d wait", item, err, g.Waiting())
			}
		}
		cancel()
		synctest.Wait()
		stays := make(chan []int, 1)
		go func() { got, _ := g.Do(t.Context(), 4, -4, -5); stays <- got }()
		synctest.Wait()
		if g.Waiting() != 3 {
			t.Errorf("%d items wait, want the items whose callers are there", g.Waiting())
		}
		close(gate)
		if got := <-stays; !slices.Equal(got, []int{8, -8, -10}) {
			t.Errorf("got %v", got)
		}
	})
}
