package submit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// still is a store in which nothing moves.
type still struct {
	halfmsg.Intake
	halfmsg.Inspector
	looks atomic.Int64
}

func (s *still) Get(context.Context, halfmsg.Name) (halfmsg.Record, error) {
	s.looks.Add(1)
	return halfmsg.Record{State: halfmsg.Sendable}, nil
}

// newBatcher returns a batcher on a store, and stop, which ends its waits.
func newBatcher(t *testing.T, store interface {
	halfmsg.Intake
	halfmsg.Inspector
},
) (b *Batcher, stop context.CancelFunc) {
	t.Helper()
	stopping, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	return New(Config{
		Intake: store, Inspector: store, Pipeline: &delivery.Pipeline{}, Calls: 20_000, StoreTimeout: 10 * time.Second,
		Stopping: stopping,
	}), stop
}

// awaitDone waits for messages that are SENDABLE in the store, and returns the results of the wait.
func awaitDone(ctx context.Context, t *testing.T, b *Batcher, names []halfmsg.Name) []halfmsg.Result {
	t.Helper()
	moves, err := b.watch.subscribe(names)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer b.watch.unsubscribe(moves)
	w := &waiter{
		batcher: b, wait: UntilDone, subscription: moves,
		claimed: make([]bool, len(names)), results: make([]halfmsg.Result, len(names)),
	}
	for i := range w.results {
		w.results[i].State = halfmsg.Sendable
	}
	w.await(ctx)
	return w.results
}

// While the broker is down nothing moves. Many waits then cost Redis no more than few, and a notification ends a wait
// at once, without a look at the store.
func TestMoreWaitsLookNoMoreOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &still{}
		b, _ := newBatcher(t, store)
		const outage = 10 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), outage)
		defer cancel()
		var calls sync.WaitGroup
		for call := range 20 {
			var names []halfmsg.Name
			for i := range 500 {
				names = append(names, halfmsg.Name{Producer: "orders", ID: fmt.Sprint(call, "-", i)})
			}
			calls.Go(func() { awaitDone(ctx, t, b, names) })
		}
		synctest.Wait()
		time.Sleep(outage / 2)

		one := halfmsg.Name{Producer: "stock", ID: "1"}
		calls.Go(func() {
			begun := time.Now()
			if got := awaitDone(ctx, t, b, []halfmsg.Name{one}); got[0].State != halfmsg.Done ||
				time.Since(begun) != time.Second {
				t.Errorf("%v after %v, want done after the second in which it was", got, time.Since(begun))
			}
		})
		synctest.Wait()
		time.Sleep(time.Second)
		b.Moved([]halfmsg.Moved{{Name: one, State: halfmsg.Done}})
		calls.Wait()
		if most, n := int64(maxPolls*(outage/lookPause+1)), store.looks.Load(); n > most || n < most/2 {
			t.Errorf("%d looks in %v, want at most %d, and at least half as many", n, outage, most)
		}
	})
}

// hanging is a store that does not answer.
type hanging struct{ still }

func (*hanging) Get(ctx context.Context, _ halfmsg.Name) (halfmsg.Record, error) {
	<-ctx.Done()
	return halfmsg.Record{}, ctx.Err()
}

func TestAStopEndsAHangingLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{}
		b, stop := newBatcher(t, store)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var call sync.WaitGroup
		call.Go(func() {
			begun := time.Now()
			got := awaitDone(ctx, t, b, []halfmsg.Name{{Producer: "orders", ID: "1"}})
			if !errors.Is(got[0].Err, ErrStopping) || time.Since(begun) != time.Second {
				t.Errorf("%v after %v, want the stop's answer after a second", got, time.Since(begun))
			}
		})
		time.Sleep(time.Second)
		stop()
		call.Wait()
	})
}
