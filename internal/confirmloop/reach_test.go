package confirmloop_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/must"
)

var errAway = errors.New("connection refused")

func TestUnreachableProducerCostsNoAttempts(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) {
			return nil, errAway
		})
		names := h.have("orders", numbered(1000)...)
		h.run(time.Hour)
		for _, name := range names {
			got := h.wantState(name, halfmsg.Pending)
			if got.ConfirmAttempts != 0 || (got.LastError != "" && got.LastError != errAway.Error()) {
				t.Fatalf("%+v", got)
			}
		}
		// The pauses grow to a minute: about one call for each, some more in the beginning.
		if h.asks() < 55 || h.asks() > 150 {
			t.Errorf("a dead producer was called %d times in an hour", h.asks())
		}

		h.answers(nil)
		h.run(2 * time.Minute)
		if got := h.store.Count(halfmsg.Sendable); got != 1000 {
			t.Errorf("%d are sendable when the producer is back", got)
		}
	})
}

func TestOpenCircuitPostponesMessages(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		for _, id := range numbered(3) {
			h.submit(h.have("orders", id)...)
			synctest.Wait()
		}
		names := h.have("orders", "next")
		h.submit(names[0])
		synctest.Wait()
		if h.asks() != 3 {
			t.Errorf("called %d times, want 3 and then a pause", h.asks())
		}
		got := h.wantState(names[0], halfmsg.Pending)
		if wait := time.Until(got.DueAt); got.LeaseOwner != "" || got.LastError != errAway.Error() || wait < time.Second/2 {
			t.Errorf("%+v, due in %v", got, wait)
		}
		silent := h.have("orders", "silent")[0]
		h.pass()
		if got := h.wantState(silent, halfmsg.Pending); got.LeaseOwner != "" || got.DueAt.After(time.Now()) {
			t.Errorf("a pass claimed %+v", got)
		}

		// Another target of the same producer is asked all the while.
		elsewhere := message("orders", "elsewhere")
		elsewhere.CallbackTarget = "replica:9000"
		h.store.Create(h.t.Context(), []halfmsg.Message{elsewhere})
		h.answers(nil)
		h.submit(elsewhere.Name)
		synctest.Wait()
		h.wantState(elsewhere.Name, halfmsg.Sendable)
	})
}

func TestOneCallTriesATargetAgain(t *testing.T) {
	inHouse(t, confirmloop.Config{Batch: 10}, func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		for _, id := range numbered(3) {
			h.submit(h.have("orders", id)...)
			synctest.Wait()
		}
		time.Sleep(2 * time.Second) // the pause is over
		h.answers(hanging("orders", nil))
		h.have("orders", numbered(500)...)
		for _, id := range []string{"a", "b", "c"} {
			h.submit(h.have("orders", id)...)
			synctest.Wait()
		}
		h.pass()
		if h.asks() != 4 {
			t.Errorf("%d calls try a target, want a single probe while the target may be down", h.asks()-3)
		}
		if h.Waiting() > 10 {
			t.Errorf("%d messages were claimed for a single probe", h.Waiting())
		}
		h.answers(nil)
		h.run(time.Minute)
		if got := h.store.Count(halfmsg.Sendable); got != 503 {
			t.Errorf("%d of 503 are sendable when the target is back", got)
		}
	})
}

// Another coordinator may be the one that reaches the producer, and take all messages from then on.
func TestUnusedTargetIsForgotten(t *testing.T) {
	for what, answer := range map[string]confirm{
		"unreachable": func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway },
		"failing":     failsFor(numbered(20)...),
	} {
		t.Run(what, func(t *testing.T) {
			inHouse(t, confirmloop.Config{}, func(h *house) {
				h.answers(answer)
				names := h.have("orders", numbered(20)...)
				for _, name := range names {
					h.submit(name)
					synctest.Wait()
				}
				paused := func() bool { return look(h, func() bool { return h.paused }) }
				h.run(time.Minute)
				if !paused() {
					t.Error("the circuit is closed while messages wait for the target")
				}
				h.store.Discard(h.t.Context(), names, halfmsg.Pending)
				if h.run(100 * time.Second); paused() {
					t.Error("the circuit of a target without messages stays open")
				}
			})
		})
	}
}

// Coordinators share the messages of a dead producer. One that gets none for a turn must not begin anew.
func TestCircuitsOfSharedMessagesStayOpen(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		second := confirmloop.New(testConfig(confirmloop.Config{
			Store: h.store, Callbacks: h, Metrics: h, Logger: slog.New(slog.DiscardHandler),
			Pipeline: &delivery.Pipeline{Send: sendStage(h.send), ConfirmLoop: wakeFunc(func() {})},
		}))
		h.have("orders", numbered(20)...)
		for end := time.Now().Add(2 * time.Hour); time.Now().Before(end); {
			for _, c := range []*confirmloop.Confirmer{h.Confirmer, second} {
				_, err := c.Pass(h.t.Context())
				must.Succeed(t, err)
				time.Sleep(time.Second / 2)
			}
		}
		if n := look(h, func() int { return len(h.told) }); n > 10 {
			t.Errorf("circuits opened and closed %d times in two hours, want twice", n)
		}
		// A call of each for each minute, some more in the beginning.
		if n := h.asks(); n > 400 {
			t.Errorf("a dead producer was called %d times in two hours", n)
		}
		must.Succeed(t, second.Close(context.Background()))
	})
}

// Another coordinator has the messages, and it alone knows whether the producer is back.
func TestAnswerElsewhereClosesTheCircuit(t *testing.T) {
	var answeredAt time.Time
	config := confirmloop.Config{AnsweredAt: func() map[string]time.Time {
		return map[string]time.Time{"orders": answeredAt}
	}}
	inHouse(t, config, func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		answeredAt = time.Now()
		h.submit(h.have("orders", "1")...)
		h.run(10 * time.Second)
		paused := func() bool { return look(h, func() bool { return h.paused }) }
		for claimed := false; !claimed; time.Sleep(time.Second) {
			claims, err := h.store.ClaimPending(h.t.Context(), map[string]int{"orders": 1}, time.Hour)
			must.Succeed(t, err)
			claimed = len(claims) > 0
		}
		if h.run(3 * time.Minute); !paused() {
			t.Error("the circuit closed although the producer answered no coordinator since")
		}
		answeredAt = time.Now()
		if h.run(2 * time.Second); paused() {
			t.Error("the circuit stays open although the producer answers another coordinator")
		}
	})
}

// A producer has two targets. One is dead, and the other answers all the time, which says nothing about the dead one.
func TestLiveTargetHidesNoDeadOne(t *testing.T) {
	config := confirmloop.Config{AnsweredAt: func() map[string]time.Time {
		return map[string]time.Time{"orders": time.Now()}
	}}
	inHouse(t, config, func(h *house) {
		h.answers(func(_ context.Context, to halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			if to.Address == "live:1" {
				return all(ids, halfmsg.VerdictCommitted), nil
			}
			return nil, errAway
		})
		h.submit(h.have("orders", "1")...)
		h.run(10 * time.Second)
		paused := func() bool { return look(h, func() bool { return h.paused }) }
		for claimed := false; !claimed; time.Sleep(time.Second) { // another coordinator has it
			claims, err := h.store.ClaimPending(h.t.Context(), map[string]int{"orders": 1}, time.Hour)
			must.Succeed(t, err)
			claimed = len(claims) > 0
		}
		for n := range 60 {
			m := message("orders", fmt.Sprint("live", n))
			m.CallbackTarget = "live:1"
			h.store.Create(h.t.Context(), []halfmsg.Message{m})
			h.submit(m.Name)
			if h.run(3 * time.Second); n > 10 && !paused() {
				t.Fatalf("the circuit closed after %d s", 3*n)
			}
		}
	})
}

func TestOnlyUnreachableOpensTheBreaker(t *testing.T) {
	inHouse(t, confirmloop.Config{Backoff: backoff.Steps{time.Second}, Attempts: 1000}, func(h *house) {
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			return all(ids, halfmsg.VerdictUnknown), nil
		})
		h.have("orders", "1")
		h.run(time.Minute)
		if h.asks() < 30 {
			t.Errorf("asked %d times in a minute: UNKNOWN was taken for unreachable", h.asks())
		}
	})
}
