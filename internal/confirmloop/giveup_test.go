package confirmloop_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// limited has a time limit of ten minutes and, by the attempts alone, no end in sight.
func limited() confirmloop.Config {
	return confirmloop.Config{
		GiveUpAfter: 10 * time.Minute, Attempts: 1000, Backoff: backoff.Steps{time.Second, time.Hour},
	}
}

const limitPassed = "confirm.give_up_after (10m0s) has passed: "

func TestTimeLimitBringsTheFinalQuestion(t *testing.T) {
	inHouse(t, limited(), func(h *house) {
		var finalAt []time.Duration
		begun := time.Now()
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, final bool) (verdicts, error) {
			if final {
				finalAt = append(finalAt, time.Since(begun))
			}
			return all(ids, halfmsg.VerdictUnknown), nil
		})
		name := h.have("orders", "1")[0]
		h.run(10 * time.Minute)
		h.wantState(name, halfmsg.Pending)
		h.run(2 * time.Second)
		got := h.wantState(name, halfmsg.Abandoned)
		if want := limitPassed + "the producer answered UNKNOWN to the final question"; got.LastError != want {
			t.Errorf("the cause is %q, want %q", got.LastError, want)
		}
		if len(finalAt) != 1 || finalAt[0] < 10*time.Minute {
			t.Errorf("the final question came after %v", finalAt)
		}
		if len(h.sent)+len(h.deleted) > 0 {
			t.Errorf("sent %v, deleted %v", h.sent, h.deleted)
		}
	})
}

// A committed message waits no longer than its patience for a message before it whose producer does not know.
func TestPatienceBringsTheFinalQuestion(t *testing.T) {
	config := limited()
	config.GiveUpAfter, config.Patience = 0, time.Minute
	inHouse(t, config, func(h *house) {
		var finalAt []time.Duration
		begun := time.Now()
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, final bool) (verdicts, error) {
			if ids[0] == "2" {
				return all(ids, halfmsg.VerdictCommitted), nil
			}
			if final {
				finalAt = append(finalAt, time.Since(begun))
			}
			return all(ids, halfmsg.VerdictUnknown), nil
		})
		var names []halfmsg.Name
		for _, id := range []string{"1", "2"} {
			m := message("orders", id)
			m.OrderingKey, m.ConfirmAfter = "customer-7", time.Hour
			h.store.Create(t.Context(), []halfmsg.Message{m})
			names = append(names, m.Name)
		}
		h.submit(names[1])
		h.run(58 * time.Second)
		h.wantState(names[0], halfmsg.Pending)
		if got := h.wantState(names[1], halfmsg.Sendable); got.HeldBy != "1" || len(h.sent) > 0 {
			t.Errorf("held by %q, and sent: %v", got.HeldBy, h.sent)
		}
		h.run(4 * time.Second)
		got := h.wantState(names[0], halfmsg.Abandoned)
		if !strings.Contains(got.LastError, "ordering.patience (1m0s) has passed") || len(finalAt) != 1 {
			t.Errorf("the cause is %q, and the final questions came after %v", got.LastError, finalAt)
		}
	})
}

func TestTimeLimitKeepsACommittedMessage(t *testing.T) {
	inHouse(t, limited(), func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		name := h.have("orders", "1")[0]
		h.run(9 * time.Minute)
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, final bool) (verdicts, error) {
			if !final {
				return all(ids, halfmsg.VerdictUnknown), nil
			}
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		h.run(2 * time.Minute)
		h.wantState(name, halfmsg.Sendable)
	})
}

// Whatever stands in place of a verdict, a message is given up at the limit, and uses up no attempt.
func TestTimeLimitEndsWaitForAnswer(t *testing.T) {
	for what, answer := range map[string]confirm{
		errAway.Error(): func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway },
		"INTERNAL": func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) {
			return nil, fmt.Errorf("INTERNAL: %w", halfmsg.ErrCallFailed)
		},
		"panic": func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { panic("broken") },
		"the producer answered UNAVAILABLE": func(
			_ context.Context, _ halfmsg.Target, ids []string, _ bool,
		) (verdicts, error) {
			return all(ids, halfmsg.VerdictUnavailable), nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			inHouse(t, limited(), func(h *house) {
				h.answers(answer)
				names := h.have("orders", numbered(3)...)
				h.run(10 * time.Minute)
				for _, name := range names {
					h.wantState(name, halfmsg.Pending)
				}
				h.run(5 * time.Minute)
				for _, name := range names {
					got := h.wantState(name, halfmsg.Abandoned)
					if got.ConfirmAttempts != 0 || !strings.HasPrefix(got.LastError, limitPassed) ||
						!strings.Contains(got.LastError, what) {
						t.Errorf("%s: %d attempts, %q", name, got.ConfirmAttempts, got.LastError)
					}
				}
				if len(h.deleted) > 0 {
					t.Errorf("deleted the markers of %v, whose fate is open", h.deleted)
				}
			})
		})
	}
}

// A backlog is given up faster than a batch for each probe, and without more calls.
func TestTimeLimitEndsBacklogInTime(t *testing.T) {
	config := limited()
	config.Batch = 10
	inHouse(t, config, func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		h.have("orders", numbered(1000)...)
		h.run(10 * time.Minute)
		if got := h.store.Count(halfmsg.Pending); got != 1000 {
			t.Errorf("%d are pending at the limit", got)
		}
		asks := h.asks()
		h.run(4 * time.Minute)
		if got := h.store.Count(halfmsg.Abandoned); got != 1000 {
			t.Errorf("%d of 1,000 are given up four minutes after the limit", got)
		}
		if more := h.asks() - asks; more > 10 {
			t.Errorf("the producer was called %d times meanwhile", more)
		}
		young := h.have("orders", "young")[0]
		h.run(5 * time.Minute)
		h.wantState(young, halfmsg.Pending)
	})
}

// A good message in the quarantine waits until it is asked about alone.
func TestTimeLimitSparesUnaskedMessages(t *testing.T) {
	inHouse(t, limited(), func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		good := h.have("orders", "0-good")[0] // the first, and so the last in the quarantine
		poison := h.have("orders", numbered(30)...)
		h.run(9 * time.Minute)
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			for _, id := range ids {
				if id != good.ID {
					return nil, fmt.Errorf("INTERNAL: %w", halfmsg.ErrCallFailed)
				}
			}
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		time.Sleep(2 * time.Minute)
		h.run(30 * time.Minute)
		h.wantState(good, halfmsg.Sendable)
		for _, name := range poison {
			h.wantState(name, halfmsg.Abandoned)
		}
	})
}

// A Submit after the limit is asked as usual, and a call that fails then does not give the message up at once.
func TestSubmitAfterTimeLimitIsHeard(t *testing.T) {
	inHouse(t, limited(), func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		name := h.have("orders", "1")[0]
		h.run(12 * time.Minute)
		h.wantState(name, halfmsg.Abandoned)
		time.Sleep(2 * time.Minute) // the circuit is half-open again
		h.submit(name)
		synctest.Wait()
		h.wantState(name, halfmsg.Pending)
		h.answers(nil)
		h.run(2 * time.Hour)
		h.wantState(name, halfmsg.Sendable)
	})
}

func TestWithoutATimeLimitMessagesWait(t *testing.T) {
	config := limited()
	config.GiveUpAfter = 0
	inHouse(t, config, func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		name := h.have("orders", "1")[0]
		for range 30 * 60 {
			h.pass()
			time.Sleep(time.Minute)
		}
		if got := h.wantState(name, halfmsg.Pending); got.ConfirmAttempts != 0 {
			t.Errorf("%+v", got)
		}
	})
}
