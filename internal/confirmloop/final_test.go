package confirmloop_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

func TestFinalQuestionComesAfterLastAttempt(t *testing.T) {
	inHouse(t, confirmloop.Config{Attempts: 3, Backoff: backoff.Steps{time.Second}}, func(h *house) {
		var finals []bool
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, final bool) (verdicts, error) {
			finals = append(finals, final)
			return all(ids, halfmsg.VerdictUnknown), nil
		})
		names := h.have("orders", "1")
		h.run(20 * time.Second)
		h.wantState(names[0], halfmsg.Abandoned)
		if !slices.Equal(finals, []bool{false, false, false, true}) {
			t.Errorf("final was %v", finals)
		}
		if len(h.sent)+len(h.deleted) > 0 {
			t.Errorf("sent %v, deleted %v", h.sent, h.deleted)
		}

		// A verdict that comes late still counts.
		h.answers(nil)
		h.submit(names[0])
		synctest.Wait()
		h.wantState(names[0], halfmsg.Sendable)
	})
}

func TestFinalQuestionsAreAskedApart(t *testing.T) {
	inHouse(t, confirmloop.Config{Attempts: 1, Backoff: backoff.Steps{time.Second}}, func(h *house) {
		asked := map[bool]string{}
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, final bool) (verdicts, error) {
			asked[final] = strings.Join(ids, " ")
			return all(ids, halfmsg.VerdictUnknown), nil
		})
		h.have("orders", "old")
		h.pass()
		time.Sleep(time.Second)
		h.have("orders", "new")
		h.pass()
		if asked[true] != "old" || asked[false] != "new" {
			t.Errorf("asked %v", asked)
		}
	})
}

func TestUnknownOutcomeUsesNothingUp(t *testing.T) {
	inHouse(t, confirmloop.Config{Attempts: 2, Backoff: backoff.Steps{time.Second, time.Minute}}, func(h *house) {
		var finals int
		say := halfmsg.VerdictUnknown
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, final bool) (verdicts, error) {
			if final {
				finals++
				say = halfmsg.VerdictUnavailable
			}
			return all(ids, say), nil
		})
		names := h.have("orders", "1")
		h.run(time.Hour)
		if got := h.wantState(names[0], halfmsg.Pending); got.ConfirmAttempts != 2 || got.LeaseOwner != "" ||
			got.LastError != "the producer answered UNAVAILABLE: it could not find out" {
			t.Errorf("%+v, want two attempts used up", got)
		}
		// The pauses grow to a minute, with jitter.
		if finals < 55 || finals > 125 {
			t.Errorf("the final question was asked %d times in an hour", finals)
		}

		h.answers(nil)
		h.run(2 * time.Minute)
		h.wantState(names[0], halfmsg.Sendable)
	})
}

// A producer may take long over a final question. What is known by then is stored and sent.
func TestFinalQuestionHoldsUpNoVerdict(t *testing.T) {
	inHouse(t, confirmloop.Config{Attempts: 1, Backoff: backoff.Steps{time.Second}}, func(h *house) {
		gate := make(chan struct{})
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, final bool) (verdicts, error) {
			if final {
				<-gate
			}
			if slices.Contains(ids, "old") {
				return all(ids, halfmsg.VerdictUnknown), nil
			}
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		old := h.have("orders", "old")
		h.pass()
		time.Sleep(time.Second)
		h.have("orders", "new")
		if _, err := h.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := h.sentIDs(); !slices.Equal(got, []string{"new"}) {
			t.Errorf("sent %v while the final question is open, want the message with a verdict", got)
		}
		close(gate)
		synctest.Wait()
		h.wantState(old[0], halfmsg.Abandoned)
	})
}

// The final question is not begun when the lease may end before its answer.
func TestTheFinalQuestionMindsTheLease(t *testing.T) {
	inHouse(t, confirmloop.Config{Attempts: 1, Backoff: backoff.Steps{time.Second}}, func(h *house) {
		var finals int
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, final bool) (verdicts, error) {
			if final {
				finals++
			} else if slices.Contains(ids, "new") {
				time.Sleep(21 * time.Second) // more than a lease less its margin
			}
			return all(ids, halfmsg.VerdictUnknown), nil
		})
		old := h.have("orders", "old")
		h.pass()
		time.Sleep(time.Second)
		h.have("orders", "new")
		if _, err := h.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(22 * time.Second)
		synctest.Wait()
		if got := h.wantState(old[0], halfmsg.Pending); finals != 0 || got.LeaseOwner != "" {
			t.Errorf("asked %d final questions; %+v", finals, got)
		}
	})
}
