package confirmloop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

func TestUncertainLeaseBeginsNothing(t *testing.T) {
	inHouse(t, confirmloop.Config{CallsPerProducer: 1, Batch: 1}, func(h *house) {
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			time.Sleep(25 * time.Second)
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		names := h.have("orders", "1", "2")
		h.pass()
		time.Sleep(26 * time.Second)
		synctest.Wait()
		if h.asks() != 1 {
			t.Errorf("%d calls: a call began with 5 s of its lease left", h.asks())
		}
		h.wantState(names[0], halfmsg.Sendable)
		if got := h.wantState(names[1], halfmsg.Pending); got.LeaseOwner != "" {
			t.Errorf("%+v was not handed back", got)
		}
	})
}

// The store answered a Submit so late that hardly anything of the lease is left.
func TestOfferMindsWhenItsLeaseEnds(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		names := h.have("orders", "1")
		until := time.Now().Add(lease)
		claim := h.store.Submit(h.t.Context(), names, lease)[0].Claim
		time.Sleep(25 * time.Second)
		h.Offer([]halfmsg.Claim{*claim}, until)
		synctest.Wait()
		got := h.wantState(names[0], halfmsg.Pending)
		if got.LeaseOwner != "" || got.DueAt.After(time.Now()) || h.asks() != 0 {
			t.Errorf("asked %d times with 5 s of the lease left; %+v was not handed back", h.asks(), got)
		}
	})
}

func TestVerdictAfterTheLeaseIsDropped(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			time.Sleep(31 * time.Second)
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		names := h.have("orders", "1")
		h.pass()
		time.Sleep(32 * time.Second)
		synctest.Wait()
		h.wantState(names[0], halfmsg.Pending)
		h.wantNotes()
		if h.fate("committed lease_lost") != 1 {
			t.Errorf("%v", h.fates)
		}
	})
}

// Messages of one call may have been claimed at different times; its answer is of use for all of them.
func TestCallEndsWithItsFirstLease(t *testing.T) {
	for name, ends := range map[string][]time.Duration{
		"the first": {20 * time.Second, 30 * time.Second}, "the last": {30 * time.Second, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, confirmloop.Config{CallsPerProducer: 1}, func(h *house) {
				gate := make(chan struct{})
				var within []time.Duration
				h.answers(func(ctx context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
					deadline, _ := ctx.Deadline()
					within = append(within, time.Until(deadline))
					<-gate
					return all(ids, halfmsg.VerdictCommitted), nil
				})
				h.submit(h.have("orders", "before")...)
				synctest.Wait()
				for i, name := range h.have("orders", "1", "2") {
					claim := h.store.Submit(h.t.Context(), []halfmsg.Name{name}, ends[i])[0].Claim
					h.Offer([]halfmsg.Claim{*claim}, time.Now().Add(ends[i]))
				}
				close(gate)
				synctest.Wait()
				if len(within) != 2 || within[1] != 20*time.Second {
					t.Errorf("calls have to end within %v, want the second within 20 s", within)
				}
			})
		})
	}
}
