package confirmloop_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/must"
)

const held = 30 * time.Second

// acknowledged makes messages as the send side hands them on: ACKNOWLEDGED, and held.
func (h *house) acknowledged(producer string, ids ...string) (claims []halfmsg.Claim) {
	h.t.Helper()
	for _, name := range h.have(producer, ids...) {
		claim := *h.store.Submit(h.t.Context(), []halfmsg.Name{name}, held)[0].Claim
		for _, event := range []halfmsg.Event{halfmsg.EventCommitted, halfmsg.EventAckedMarked} {
			h.store.Settle(h.t.Context(), []halfmsg.Settlement{{Name: name, Token: claim.Token, Event: event, Hold: held}})
		}
		claim.State = halfmsg.Acknowledged
		claims = append(claims, claim)
	}
	return claims
}

// passAcknowledged makes passes as the runner would, once a second for that long.
func (h *house) passAcknowledged(d time.Duration) {
	h.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		for more, rounds := true, 0; more; rounds++ {
			var err error
			if more, err = h.PassAcknowledged(h.t.Context()); err != nil {
				h.t.Fatal("pass:", err)
			}
			synctest.Wait()
			if rounds > 1000 {
				h.t.Fatal("a pass without end")
			}
		}
	}
}

func TestAcknowledgedIsDoneAfterItsMarker(t *testing.T) {
	inHouse(t, confirmloop.Config{DeleteWhen: confirmloop.AfterAck}, func(h *house) {
		claims := h.acknowledged("orders", "1", "2")
		h.OfferAcknowledged(claims, time.Now().Add(held))
		synctest.Wait()
		h.wantNotes("delete 1 2", "1 done", "2 done")
	})
}

func TestAbandonedMarkersAreTakenUp(t *testing.T) {
	inHouse(t, confirmloop.Config{DeleteWhen: confirmloop.AfterAck}, func(h *house) {
		h.acknowledged("orders", "1")
		h.passAcknowledged(held - time.Second)
		h.wantNotes()
		h.passAcknowledged(2 * time.Second)
		h.wantNotes("delete 1", "1 done")
	})
}

func TestFailedDeletionIsRetriedThenLeft(t *testing.T) {
	inHouse(t, confirmloop.Config{DeleteWhen: confirmloop.AfterAck}.WithDeleteTries(3), func(h *house) {
		h.drops(failing)
		claims := h.acknowledged("orders", "1")
		h.OfferAcknowledged(claims, time.Now().Add(held))
		synctest.Wait()
		got := h.wantState(claims[0].Name, halfmsg.Acknowledged)
		if got.DeleteAttempts != 1 || got.LastError == "" || got.LeaseOwner != "" {
			t.Errorf("after a single failure: %+v", got)
		}
		h.passAcknowledged(time.Hour)
		h.wantNotes("delete 1", "delete 1", "delete 1", "1 done")
		if h.litters() != 1 {
			t.Errorf("%d markers were given up", h.litters())
		}
	})
}

// A producer that is away uses up tries only for what it was really called about, and holds up no other's markers.
func TestUnreachableTargetPausesDeletions(t *testing.T) {
	inHouse(t, confirmloop.Config{DeleteWhen: confirmloop.AfterAck, Batch: 10}, func(h *house) {
		begun := time.Now()
		h.drops(func(_ context.Context, target halfmsg.Target, _ []string) error {
			if target.Producer == "away" && time.Since(begun) < 10*time.Minute {
				return errAway
			}
			return nil
		})
		away := h.acknowledged("away", numbered(1000)...)
		h.OfferAcknowledged(away, time.Now().Add(held))
		h.OfferAcknowledged(h.acknowledged("orders", "1"), time.Now().Add(held))
		synctest.Wait()
		h.wantState(halfmsg.Name{Producer: "orders", ID: "1"}, halfmsg.Done)
		h.passAcknowledged(5 * time.Minute)
		calls := look(h, func() (n int) {
			for _, note := range h.notes {
				if strings.HasPrefix(note, "delete 0") {
					n++
				}
			}
			return n
		})
		if calls > 30 {
			t.Errorf("called %d times in 5 minutes while the producer was away", calls)
		}
		h.passAcknowledged(10 * time.Minute)
		if done := h.store.Count(halfmsg.Done); done != 1001 || h.litters() > 100 {
			t.Errorf("%d of 1001 are done, %d markers were given up", done, h.litters())
		}
	})
}

func TestPausedDeletionsAreNotClaimed(t *testing.T) {
	inHouse(t, confirmloop.Config{DeleteWhen: confirmloop.AfterAck, Batch: 1}, func(h *house) {
		h.drops(failing)
		h.OfferAcknowledged(h.acknowledged("orders", "1", "2", "3"), time.Now().Add(held)) // open the circuit
		synctest.Wait()
		claim := h.acknowledged("orders", "4")[0]
		h.store.Settle(h.t.Context(), []halfmsg.Settlement{
			{Name: claim.Name, Token: claim.Token, Event: halfmsg.EventReleased},
		})
		before := h.store.Peek(claim.Name)
		if _, err := h.PassAcknowledged(h.t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if after := h.store.Peek(claim.Name); !after.DueAt.Equal(before.DueAt) || after.LeaseOwner != "" {
			t.Errorf("a pass has claimed a message of a paused target: %+v", after)
		}
	})
}

// TestTimedOutCloseSparesDeletion cancels a deletion, which is no failure of the producer.
func TestTimedOutCloseSparesDeletion(t *testing.T) {
	inHouse(t, confirmloop.Config{DeleteWhen: confirmloop.AfterAck}, func(h *house) {
		h.drops(func(ctx context.Context, _ halfmsg.Target, _ []string) error { <-ctx.Done(); return ctx.Err() })
		claims := h.acknowledged("orders", "1")
		h.OfferAcknowledged(claims, time.Now().Add(held))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(h.t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := h.Close(ctx); err == nil {
			t.Error("a deletion hangs, and Close returned no error")
		}
		synctest.Wait()
		if got := h.wantState(claims[0].Name, halfmsg.Acknowledged); got.DeleteAttempts != 0 || got.LeaseOwner != "" {
			t.Errorf("after a cancelled deletion: %+v", got)
		}
	})
}

func TestMarkersWithoutRoomWaitInStore(t *testing.T) {
	inHouse(t, confirmloop.Config{DeleteWhen: confirmloop.AfterAck, Batch: 5}.WithDeleteBacklog(40), func(h *house) {
		gate := make(chan struct{})
		h.drops(func(context.Context, halfmsg.Target, []string) error { <-gate; return nil })
		claims := h.acknowledged("orders", numbered(100)...)
		h.OfferAcknowledged(claims, time.Now().Add(held))
		synctest.Wait()
		free := 0
		for i := range claims {
			if got := h.store.Peek(claims[i].Name); got.State == halfmsg.Acknowledged && got.LeaseOwner == "" {
				free++
			}
		}
		if free < 85 || free > 90 {
			t.Errorf("%d of 100 were handed back; a quarter of 40 may wait, and a batch be under way", free)
		}
		h.passAcknowledged(2 * time.Second)
		close(gate)
		h.passAcknowledged(time.Minute)
		if done := h.store.Count(halfmsg.Done); done != 100 || h.litters() != 0 {
			t.Errorf("%d of 100 are done, %d markers were given up", done, h.litters())
		}
	})
}

// All targets together have a room, too, and what has left it makes room for others.
func TestAcknowledgedMessagesAreBoundedAcrossTargets(t *testing.T) {
	inHouse(t, confirmloop.Config{DeleteWhen: confirmloop.AfterAck, Batch: 5}.WithDeleteBacklog(40), func(h *house) {
		gate := make(chan struct{})
		h.drops(func(context.Context, halfmsg.Target, []string) error { <-gate; return nil })
		var claims []halfmsg.Claim
		for _, producer := range numbered(8) {
			claims = append(claims, h.acknowledged(producer, numbered(20)...)...)
		}
		h.OfferAcknowledged(claims, time.Now().Add(held))
		synctest.Wait()
		free := 0
		for i := range claims {
			if h.store.Peek(claims[i].Name).LeaseOwner == "" {
				free++
			}
		}
		// Four targets have ten each, of which five are under way.
		if h.Markers() != 20 || free != 8*20-40 {
			t.Errorf("%d wait and %d were handed back, want 20 and 120", h.Markers(), free)
		}
		close(gate)
		h.passAcknowledged(time.Minute)
		if done := h.store.Count(halfmsg.Done); done != 8*20 || h.Markers() != 0 {
			t.Errorf("%d of 160 are done, %d wait", done, h.Markers())
		}
	})
}

func TestCloseHandsBackAcknowledgedMessages(t *testing.T) {
	inHouse(t, confirmloop.Config{DeleteWhen: confirmloop.AfterAck, Batch: 1}, func(h *house) {
		gate := make(chan struct{})
		h.drops(func(context.Context, halfmsg.Target, []string) error { <-gate; return nil })
		claims := h.acknowledged("orders", "1", "2", "3")
		h.OfferAcknowledged(claims[:2], time.Now().Add(held))
		synctest.Wait() // the first is under way
		closed := make(chan error, 1)
		go func() { closed <- h.Close(context.Background()) }()
		synctest.Wait()
		close(gate)
		must.Succeed(t, <-closed)
		h.OfferAcknowledged(claims[2:], time.Now().Add(held))
		h.wantState(claims[0].Name, halfmsg.Done)
		for _, claim := range claims[1:] {
			if got := h.wantState(claim.Name, halfmsg.Acknowledged); got.LeaseOwner != "" || got.DueAt.After(time.Now()) {
				t.Errorf("%s was not handed back: %+v", claim.ID, got)
			}
		}
		if more, err := h.PassAcknowledged(h.t.Context()); more || err != nil || !slices.Equal(h.deleted, []string{"1"}) {
			t.Errorf("a pass after Close: %v, %v, deleted %v", more, err, h.deleted)
		}
	})
}
