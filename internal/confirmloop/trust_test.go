package confirmloop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

func TestTrustTakesTheSubmitForTheVerdict(t *testing.T) {
	trust := func(producer string) bool { return producer == "orders" }
	inHouse(t, confirmloop.Config{Trusted: trust}, func(h *house) {
		h.answers(hanging("other", func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) {
			t.Error("asked a producer whose Submit is trusted")
			return nil, errAway
		}))
		h.submit(h.have("orders", "1")...)
		h.submit(h.have("other", "2")...)
		synctest.Wait()
		h.wantNotes("1 sendable", "delete 1", "send 1")
	})
}

func TestTrustIsForSubmitsOnly(t *testing.T) {
	inHouse(t, confirmloop.Config{Trusted: func(string) bool { return true }}, func(h *house) {
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			return all(ids, halfmsg.VerdictRolledBack), nil
		})
		names := h.have("orders", "silent")
		h.pass()
		h.wantState(names[0], halfmsg.RolledBack)
	})
}

func TestATrustedSubmitThatDoesNotFitIsStillAVerdict(t *testing.T) {
	config := confirmloop.Config{QueuePerProducer: 1, CallsPerProducer: 1, Batch: 1}
	config.Trusted = func(string) bool { return true }
	inHouse(t, config, func(h *house) {
		gate := make(chan struct{})
		h.drops(func(context.Context, halfmsg.Target, []string) error { <-gate; return nil })
		h.submit(h.have("orders", numbered(5)...)...)
		close(gate)
		synctest.Wait()
		if got := h.store.Count(halfmsg.Sendable); got != 5 || h.asks() != 0 {
			t.Errorf("%d are sendable, %d were asked about", got, h.asks())
		}
		if len(h.deleted) != 5 {
			t.Errorf("markers of %v were deleted", h.deleted)
		}
	})
}

// Nobody has said anything about a silent message whose question is broken off, whatever its producer's Submits are worth.
func TestASilentMessageThatIsHandedBackIsNoVerdict(t *testing.T) {
	inHouse(t, confirmloop.Config{Trusted: func(string) bool { return true }}, func(h *house) {
		h.answers(func(ctx context.Context, _ halfmsg.Target, _ []string, _ bool) (verdicts, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		names := h.have("orders", "silent")
		h.pass()
		ctx, cancel := context.WithTimeout(h.t.Context(), time.Second)
		defer cancel()
		if err := h.Close(ctx); err == nil {
			t.Error("a call was under way, and Close says that all is closed")
		}
		synctest.Wait()
		if got := h.wantState(names[0], halfmsg.Pending); got.LeaseOwner != "" {
			t.Errorf("%+v was not handed back", got)
		}
	})
}

// The store answered a Submit so late that the lease may be over before the message could be sent.
func TestATrustedSubmitWhoseLeaseEndsIsStillAVerdict(t *testing.T) {
	inHouse(t, confirmloop.Config{Trusted: func(string) bool { return true }}, func(h *house) {
		names := h.have("orders", "1")
		until := time.Now().Add(lease)
		claim := h.store.Submit(h.t.Context(), names, lease)[0].Claim
		time.Sleep(25 * time.Second)
		h.Offer([]halfmsg.Claim{*claim}, until)
		synctest.Wait()
		h.wantState(names[0], halfmsg.Sendable)
		if h.commits != 1 {
			t.Errorf("%d messages were counted as committed", h.commits)
		}
	})
}
