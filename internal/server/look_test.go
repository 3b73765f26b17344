package server

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
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
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

// sendable waits for messages that stand there ready to be sent, and says how its call ended.
func sendable(ctx context.Context, t *testing.T, s *Server, names []halfmsg.Name) []halfmsg.Result {
	t.Helper()
	ear, err := s.watch.subscribe(names)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer s.watch.unsubscribe(ear)
	w := &waiting{
		Server: s, wait: msghandlerv1.Wait_WAIT_DONE, subscription: ear, ours: make([]bool, len(names)), results: make([]halfmsg.Result, len(names)),
	}
	for i := range w.results {
		w.results[i].State = halfmsg.Sendable
	}
	w.await(ctx)
	return w.results
}

// While the broker is away all stands still: many who wait for much cost Redis no more than few, and whoever is told
// something hears it at once, though it is not his turn to look.
func TestMoreWhoWaitLookNoMoreOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &still{}
		s, err := New(Config{
			Intake: store, Inspector: store, Targets: takesAll{}, Pipeline: &delivery.Pipeline{},
		}.WithDefaults())
		if err != nil {
			t.Fatal(err)
		}
		const outage = 10 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), outage)
		defer cancel()
		var calls sync.WaitGroup
		for call := range 20 {
			var names []halfmsg.Name
			for i := range 500 {
				names = append(names, halfmsg.Name{Producer: "orders", ID: fmt.Sprint(call, "-", i)})
			}
			calls.Go(func() { sendable(ctx, t, s, names) })
		}
		synctest.Wait()
		time.Sleep(outage / 2)

		one := halfmsg.Name{Producer: "stock", ID: "1"}
		calls.Go(func() {
			begun := time.Now()
			if got := sendable(ctx, t, s, []halfmsg.Name{one}); got[0].State != halfmsg.Done || time.Since(begun) != time.Second {
				t.Errorf("%v after %v, want done after the second in which it was", got, time.Since(begun))
			}
		})
		synctest.Wait()
		time.Sleep(time.Second)
		s.Moved([]halfmsg.Moved{{Name: one, State: halfmsg.Done}})
		calls.Wait()
		if most, n := int64(maxPolls*(outage/lookPause+1)), store.looks.Load(); n > most || n < most/2 {
			t.Errorf("%d looks in %v, want no more than %d, and at least half of them", n, outage, most)
		}
	})
}

// hanging is a store that does not answer.
type hanging struct{ still }

func (*hanging) Get(ctx context.Context, _ halfmsg.Name) (halfmsg.Record, error) {
	<-ctx.Done()
	return halfmsg.Record{}, ctx.Err()
}

func TestAStopEndsALookThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{}
		s, err := New(Config{
			Intake: store, Inspector: store, Targets: takesAll{}, Pipeline: &delivery.Pipeline{},
		}.WithDefaults())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var call sync.WaitGroup
		call.Go(func() {
			begun := time.Now()
			got := sendable(ctx, t, s, []halfmsg.Name{{Producer: "orders", ID: "1"}})
			if !errors.Is(got[0].Err, errStopping) || time.Since(begun) != time.Second {
				t.Errorf("%v after %v, want the stop's answer after a second", got, time.Since(begun))
			}
		})
		time.Sleep(time.Second)
		s.stop()
		call.Wait()
	})
}
