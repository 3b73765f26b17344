package sendloop_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/sendloop"
)

func stuck(p halfmsg.Publishing) bool { return strings.HasPrefix(p.Name.ID, "stuck") }

// A queue that does not confirm holds up neither the rest of a batch nor the batches behind it; and what waits for it
// stays bounded.
func TestAQueueThatDoesNotConfirmKeepsNobodyWaiting(t *testing.T) {
	inHouse(t, sendloop.Config{Parallel: 1, Batch: 2}, func(h *house) {
		h.isLate(stuck)
		for _, n := range []string{"1", "2", "3", "4"} {
			h.offer("stuck"+n, "good"+n)
			synctest.Wait()
		}
		// Two messages straggle, as many as fill a batch, and the third batch keeps its place.
		for id, want := range map[string]halfmsg.State{
			"good1": halfmsg.Done, "good2": halfmsg.Done, "good3": halfmsg.Done,
			"good4": halfmsg.Sendable, "stuck1": halfmsg.Sendable,
		} {
			h.want(id, want)
		}
		if h.Waiting() != 2 {
			t.Errorf("%d messages wait, want those of the fourth batch", h.Waiting())
		}
		time.Sleep(confirmTimeout)
		synctest.Wait()
		h.want("stuck1", halfmsg.Done)
		h.want("good4", halfmsg.Done)
		time.Sleep(confirmTimeout)
		synctest.Wait()
		if got := h.store.Count(halfmsg.Done); got != 8 {
			t.Errorf("%d of 8 are done", got)
		}

		// Nothing of it is counted for ever: as much goes through as at first.
		for _, n := range []string{"5", "6"} {
			h.offer("stuck"+n, "good"+n)
		}
		time.Sleep(confirmTimeout)
		h.offer("stuck7", "stuck8") // a batch that has no answer at all
		h.offer("good7", "good8")
		synctest.Wait()
		h.want("good8", halfmsg.Done)
		time.Sleep(confirmTimeout)
	})
}

// The backlog that gives way is at the broker one batch at a time: a message that gets no answer does not count as being there.
func TestAMessageWithoutAnAnswerDoesNotStopTheBacklog(t *testing.T) {
	inHouse(t, sendloop.Config{Batch: 10}, func(h *house) {
		h.isLate(stuck)
		h.offer("fresh")
		h.waiting("stuck")
		h.waiting(numbered(20)...)
		h.pass()
		if got := h.store.Count(halfmsg.Done); got != 21 {
			t.Errorf("%d are done, want all but the one without an answer", got)
		}
		time.Sleep(confirmTimeout)
	})
}

// A dead-letter exchange that does not answer holds up neither the rest of the batch nor the next one, and a message
// whose lease would end meanwhile is not copied.
func TestDeadLettersKeepNobodyWaiting(t *testing.T) {
	inHouse(t, sendloop.Config{
		Parallel: 1, DeadLetterExchange: "dlx", Backoff: backoff.Steps{time.Second},
	}, func(h *house) {
		refuse := func(_ context.Context, p halfmsg.Publishing) halfmsg.PublishResult {
			if stuck(p) && p.Exchange != "dlx" {
				return halfmsg.PublishResult{Outcome: halfmsg.Refused, Cause: errBroker}
			}
			return halfmsg.PublishResult{Outcome: halfmsg.Acked}
		}
		h.answers(refuse, nil)
		h.isLate(func(p halfmsg.Publishing) bool { return p.Exchange == "dlx" })
		h.waiting("stuck1")
		h.pass()
		time.Sleep(time.Second) // its last attempt is due
		h.waiting("good1")
		h.pass()
		h.offer("good2")
		synctest.Wait()
		h.want("good1", halfmsg.Done)
		h.want("good2", halfmsg.Done)
		h.want("stuck1", halfmsg.Sendable)
		time.Sleep(confirmTimeout)
		synctest.Wait()
		h.want("stuck1", halfmsg.Dead)

		// With an answer that comes late, the lease is too short for another one.
		h.waiting("stuck2")
		h.pass()
		time.Sleep(time.Second)
		h.isLate(func(p halfmsg.Publishing) bool { return p.Exchange == "x" })
		h.answers(func(ctx context.Context, p halfmsg.Publishing) halfmsg.PublishResult {
			time.Sleep(confirmTimeout + 5*time.Second)
			return refuse(ctx, p)
		}, nil)
		h.pass()
		time.Sleep(lease)
		synctest.Wait()
		if got := h.want("stuck2", halfmsg.Sendable); got.LeaseOwner != "" {
			t.Errorf("%+v was not put off", got)
		}
		for _, p := range h.published() {
			if p.Exchange == "dlx" && p.Name.ID == "stuck2" {
				t.Error("it was copied, though its lease might end before the answer")
			}
		}
	})
}

// What cannot be sent although the broker takes other messages is tried less and less.
func TestWhatIsNotSentIsTriedLessAndLess(t *testing.T) {
	inHouse(t, sendloop.Config{}, func(h *house) {
		h.answers(always(halfmsg.Unsent), nil)
		h.waiting("1")
		h.run(5 * time.Minute)
		if n := len(h.published()); n < 5 || n > 14 {
			t.Errorf("tried %d times in five minutes, want each minute in the end", n)
		}
		h.answers(nil, nil)
		h.run(time.Minute)
		h.want("1", halfmsg.Done)
	})
}
