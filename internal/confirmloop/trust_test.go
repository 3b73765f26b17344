package confirmloop_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/must"
)

func TestTrustTakesSubmitForVerdict(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.submitTrusted(h.have("orders", "1")...)
		synctest.Wait()
		h.wantNotes("1 sendable", "delete 1", "send 1")
		if h.asks() != 0 || h.commits != 1 || h.fate("committed stored") != 1 {
			t.Errorf("%d questions, %d commits and %d verdicts are counted", h.asks(), h.commits, h.fate("committed stored"))
		}
	})
}

func TestTrustedSubmitsAfterAckKeepMarker(t *testing.T) {
	inHouse(t, confirmloop.Config{DeleteWhen: confirmloop.AfterAck}, func(h *house) {
		later := message("orders", "later")
		later.Delay = time.Hour
		h.store.Create(h.t.Context(), []halfmsg.Message{later})
		h.submitTrusted(append(h.have("orders", "1"), later.Name)...)
		synctest.Wait()
		h.wantNotes("1 sendable", "later sendable", "send 1")
	})
}

// A message with a delay has no owner until it is due. Its marker is not needed any more.
func TestDelayedTrustedSubmitDeletesTheMarker(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		later := message("orders", "later")
		later.Delay = time.Hour
		h.store.Create(h.t.Context(), []halfmsg.Message{later})
		h.submitTrusted(later.Name)
		synctest.Wait()
		h.wantNotes("later sendable", "delete later")
	})
}

func TestTrustIsForSubmitsOnly(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			return all(ids, halfmsg.VerdictRolledBack), nil
		})
		names := h.have("orders", "silent")
		h.pass()
		h.submitTrusted(names...)
		h.wantState(names[0], halfmsg.RolledBack)
	})
}

// A trusted Submit comes while a question is under way. Every answer of the producer is too late.
func TestTrustedSubmitDuringQuestionWins(t *testing.T) {
	for verdict, fate := range map[halfmsg.Verdict]string{
		halfmsg.VerdictCommitted: "committed lease_lost", halfmsg.VerdictUnknown: "unknown lease_lost",
		halfmsg.VerdictRolledBack: "rolled_back contradiction", halfmsg.VerdictUnavailable: "unreachable lease_lost",
	} {
		t.Run(fmt.Sprint(verdict), func(t *testing.T) {
			inHouse(t, confirmloop.Config{}, func(h *house) {
				gate := make(chan struct{})
				h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
					<-gate
					return all(ids, verdict), nil
				})
				names := h.have("orders", "1")
				h.pass()
				h.submitTrusted(names...)
				synctest.Wait()
				h.wantState(names[0], halfmsg.Sendable)
				close(gate)
				synctest.Wait()
				h.wantNotes("1 sendable", "delete 1", "send 1")
				if h.fate(fate) != 1 {
					t.Errorf("events after the answer: %v", h.fates)
				}
			})
		})
	}
}

func TestTrustedSubmitWithoutRoomIsVerdict(t *testing.T) {
	config := confirmloop.Config{QueuePerProducer: 1, CallsPerProducer: 1, Batch: 1}
	inHouse(t, config, func(h *house) {
		gate := make(chan struct{})
		h.drops(func(context.Context, halfmsg.Target, []string) error { <-gate; return nil })
		h.submitTrusted(h.have("orders", numbered(5)...)...)
		close(gate)
		synctest.Wait()
		if got := h.store.Count(halfmsg.Sendable); got != 5 || h.asks() != 0 {
			t.Errorf("%d are sendable, %d were asked about", got, h.asks())
		}
		if len(h.deleted) != 5 {
			t.Errorf("markers of %v were deleted", h.deleted)
		}
		held := 0
		for _, id := range numbered(5) {
			if h.store.Peek(halfmsg.Name{Producer: "orders", ID: id}).LeaseOwner != "" {
				held++
			}
		}
		if sent := len(h.sentIDs()); sent != held || sent == 5 {
			t.Errorf("%d are sent and %d are held: the others are for the send loop", sent, held)
		}
	})
}

// A message that was not submitted, and whose question is broken off, has no verdict, also when its producer's Submits
// are trusted.
func TestHandedBackMessageHasNoVerdict(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(ctx context.Context, _ halfmsg.Target, _ []string, _ bool) (verdicts, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		names := h.have("orders", "silent")
		h.pass()
		ctx, cancel := context.WithTimeout(h.t.Context(), time.Second)
		defer cancel()
		if err := h.Close(ctx); err == nil {
			t.Error("a call was under way, and Close returned no error")
		}
		synctest.Wait()
		if got := h.wantState(names[0], halfmsg.Pending); got.LeaseOwner != "" {
			t.Errorf("%+v was not handed back", got)
		}
	})
}

// The store answered a Submit so late that the lease may be over before the message could be sent.
func TestTrustedSubmitDecidesWithEndedLease(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		names := h.have("orders", "1")
		until := time.Now().Add(lease)
		claim := h.store.SubmitTrusted(h.t.Context(), names, lease)[0].Claim
		time.Sleep(25 * time.Second)
		h.Offer([]halfmsg.Claim{*claim}, until)
		synctest.Wait()
		if got := h.wantState(names[0], halfmsg.Sendable); got.LeaseOwner != "" || len(h.sentIDs()) > 0 {
			t.Errorf("%v was sent, and %+v is held", h.sentIDs(), got)
		}
		if h.commits != 1 || len(h.deleted) != 1 {
			t.Errorf("%d messages were counted as committed, and markers of %v deleted", h.commits, h.deleted)
		}
	})
}

func TestTrustedSubmitAfterCloseIsReturned(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		names := h.have("orders", "1")
		must.Succeed(t, h.Close(h.t.Context()))
		h.submitTrusted(names...)
		if got := h.wantState(names[0], halfmsg.Sendable); got.LeaseOwner != "" {
			t.Errorf("%+v was not handed back", got)
		}
		h.wantNotes("1 sendable", "delete 1")
	})
}
