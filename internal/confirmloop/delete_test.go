package confirmloop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/must"
)

func failing(context.Context, halfmsg.Target, []string) error { return errAway }

func TestFailedDeletionIsRetriedInBackground(t *testing.T) {
	for name, fails := range map[string]drop{
		"an error": failing,
		"a panic":  func(context.Context, halfmsg.Target, []string) error { panic("oops") },
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, confirmloop.Config{}, func(h *house) {
				h.drops(fails)
				h.submit(h.have("orders", "1")...)
				synctest.Wait()
				h.wantNotes("1 sendable", "delete 1", "send 1")
				h.drops(nil)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				h.wantNotes("1 sendable", "delete 1", "send 1", "delete 1")
				if h.litters() != 0 {
					t.Errorf("%d markers were given up", h.litters())
				}
			})
		})
	}
}

// Messages wait for deletions again as soon as one has worked; until then the markers wait for the messages.
func TestWorkingDeletionsComeFirstAgain(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		submit := func(id string, notes ...string) {
			t.Helper()
			look(h, func() any { h.notes = nil; return nil })
			h.submit(h.have("orders", id)...)
			synctest.Wait()
			h.wantNotes(append([]string{id + " sendable"}, notes...)...)
		}
		for _, id := range numbered(5) { // never three failures in a row
			h.drops(failing)
			submit(id, "delete "+id, "send "+id)
			h.drops(nil)
			submit("well "+id, "delete well "+id, "send well "+id)
		}
		time.Sleep(time.Minute) // all are deleted
		h.drops(failing)
		for _, id := range []string{"1", "2", "3"} {
			submit(id, "delete "+id, "send "+id)
		}
		submit("4", "send 4")
		time.Sleep(time.Minute) // the pause is over, and the markers are tried in the background
		submit("5", "send 5", "delete 5")
		submit("6", "send 6")
		time.Sleep(time.Minute)
		h.drops(nil)
		submit("7", "send 7", "delete 7")
		submit("8", "delete 8", "send 8")
	})
}

func TestFailingDeletionIsGivenUp(t *testing.T) {
	inHouse(t, confirmloop.Config{}.WithDeleteTries(3), func(h *house) {
		h.drops(failing)
		h.submit(h.have("orders", "1")...)
		time.Sleep(time.Hour)
		synctest.Wait()
		h.wantNotes("1 sendable", "delete 1", "send 1", "delete 1", "delete 1")
		if h.litters() != 1 {
			t.Errorf("%d markers were given up", h.litters())
		}
	})
}

func TestSlowDeletionDelaysForItsTimeout(t *testing.T) {
	inHouse(t, confirmloop.Config{DeleteTimeout: 2 * time.Second}, func(h *house) {
		h.drops(func(ctx context.Context, _ halfmsg.Target, _ []string) error { <-ctx.Done(); return ctx.Err() })
		h.submit(h.have("orders", "1")...)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := len(h.sentIDs()); got != 1 {
			t.Error("the message still waits for its marker's deletion")
		}
		// After a few failures nothing waits for deletions any more.
		for _, id := range numbered(3) {
			h.submit(h.have("orders", id)...)
			time.Sleep(2 * time.Second)
		}
		h.submit(h.have("orders", "quick")...)
		synctest.Wait()
		if got := len(h.sentIDs()); got != 5 {
			t.Errorf("%d of 5 were sent", got)
		}
	})
}

// That deletions fail is remembered for as long as there are messages.
func TestNoMessageWaitsForFailingDeletions(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.drops(func(ctx context.Context, _ halfmsg.Target, _ []string) error { <-ctx.Done(); return ctx.Err() })
		for i, id := range numbered(30) {
			h.submit(h.have("orders", id)...)
			synctest.Wait()
			if sent := len(h.sentIDs()); i >= 3 && sent != i+1 {
				t.Errorf("%d of %d were sent: a message waits for a deletion", sent, i+1)
			}
			time.Sleep(time.Minute)
		}
		h.drops(nil)
		time.Sleep(time.Hour)
		if deleted := look(h, func() int { return len(h.deleted) }); deleted+h.litters() != 30 {
			t.Errorf("%d markers were deleted and %d given up, want 30 in all", deleted, h.litters())
		}
	})
}

func TestWaitingMarkersAreBounded(t *testing.T) {
	inHouse(t, confirmloop.Config{}.WithDeleteBacklog(40).WithDeleteTries(2), func(h *house) {
		h.drops(failing)
		h.submit(h.have("orders", numbered(100)...)...)
		synctest.Wait()
		if h.litters() != 90 {
			t.Errorf("%d markers were given up at once, want all but a quarter of 40", h.litters())
		}
		time.Sleep(time.Hour)
	})
}

func TestAfterAckKeepsMarkersUntilPublished(t *testing.T) {
	inHouse(t, confirmloop.Config{DeleteWhen: confirmloop.AfterAck}, func(h *house) {
		h.answers(func(_ context.Context, _ halfmsg.Target, _ []string, _ bool) (verdicts, error) {
			return map[string]halfmsg.Verdict{"1": halfmsg.VerdictCommitted, "2": halfmsg.VerdictRolledBack}, nil
		})
		h.have("orders", "1", "2")
		h.pass()
		h.wantNotes("1 sendable", "2 rolled_back", "delete 2", "send 1")
	})
}

func TestCloseTriesDeletionsOnceMore(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.drops(failing)
		h.submit(h.have("orders", "1")...)
		synctest.Wait()
		h.drops(nil)
		begun := time.Now()
		must.Succeed(t, h.Close(h.t.Context()))
		if len(h.deleted) != 1 || time.Since(begun) > 0 {
			t.Errorf("deleted %v after %v", h.deleted, time.Since(begun))
		}
	})
}

func TestTimedOutCloseEndsDeletions(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.drops(func(ctx context.Context, _ halfmsg.Target, _ []string) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errAway
		})
		h.submit(h.have("orders", "1")...)
		synctest.Wait() // its marker waits to be tried again
		h.answers(func(ctx context.Context, _ halfmsg.Target, _ []string, _ bool) (verdicts, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		h.submit(h.have("stock", "2")...)
		synctest.Wait() // it is asked about
		ctx, cancel := context.WithTimeout(h.t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := h.Close(ctx); err == nil {
			t.Error("a confirm call hangs, and Close returned no error")
		}
		synctest.Wait()
		tried := len(look(h, func() []string { return h.notes }))
		time.Sleep(time.Hour)
		if still := len(look(h, func() []string { return h.notes })); still != tried {
			t.Errorf("after Close %d more deletions were tried", still-tried)
		}
		if h.litters() != 1 {
			t.Errorf("%d markers are left to the producer, want 1", h.litters())
		}
	})
}

// The send side closes after the confirm side, and may still learn of markers that are left over.
func TestDeletionAfterCloseIsTriedOnce(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.drops(func(ctx context.Context, _ halfmsg.Target, _ []string) error { return ctx.Err() })
		h.submit(h.have("orders", "1")...)
		synctest.Wait()
		must.Succeed(t, h.Close(h.t.Context()))
		h.sent[0].Copies = 1
		h.DeleteLeftMarkers(h.sent)
		h.wantNotes("1 sendable", "delete 1", "send 1", "delete 1")
		if h.litters() != 0 {
			t.Errorf("%d markers were given up, after Close", h.litters())
		}
	})
}

// A coordinator may have ended between the verdict and the deletion: a copy tells, and of a delayed message nothing
// does.
func TestLeftMarkersAreDeletedOnceMore(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		usual := halfmsg.Claim{Message: message("orders", "usual")}
		taken, delayed := usual, usual
		taken.ID, taken.Copies = "taken over", 1
		delayed.ID, delayed.Delay = "delayed", time.Second
		h.DeleteLeftMarkers([]halfmsg.Claim{usual, taken, delayed})
		synctest.Wait()
		h.wantNotes("delete taken over delayed")
	})
}
