package confirmloop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/must"
)

func TestCloseFinishesCallsAndReturnsRest(t *testing.T) {
	inHouse(t, confirmloop.Config{Batch: 10, CallsPerProducer: 1}, func(h *house) {
		gate := make(chan struct{})
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			<-gate
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		names := h.have("orders", numbered(35)...)
		h.pass()
		closed := make(chan error, 1)
		go func() { closed <- h.Close(context.Background()) }()
		synctest.Wait()
		close(gate)
		must.Succeed(t, <-closed)
		if got := len(h.sentIDs()); got != 10 {
			t.Errorf("%d were sent, want the 10 under way", got)
		}
		for _, name := range names[10:] {
			if got := h.wantState(name, halfmsg.Pending); got.LeaseOwner != "" || got.DueAt.After(time.Now()) {
				t.Fatalf("%+v was not handed back", got)
			}
		}
		h.submit(names[20])
		if more, err := h.Pass(h.t.Context()); more || err != nil || h.asks() != 1 {
			t.Errorf("a pass after Close: %v, %v, %d calls", more, err, h.asks())
		}
		if got := h.store.Peek(names[20]); got.LeaseOwner != "" {
			t.Errorf("an offer after Close was kept: %+v", got)
		}
	})
}

func TestTimedOutCloseCancelsCalls(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(ctx context.Context, _ halfmsg.Target, _ []string, _ bool) (verdicts, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		names := h.have("orders", "1")
		h.pass()
		ctx, cancel := context.WithTimeout(h.t.Context(), time.Second)
		defer cancel()
		if err := h.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close returned %v", err)
		}
		synctest.Wait()
		if got := h.wantState(names[0], halfmsg.Pending); got.LeaseOwner != "" || got.LastError != "" {
			t.Errorf("%+v was not handed back", got)
		}
	})
}
