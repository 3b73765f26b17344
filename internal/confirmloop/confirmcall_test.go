package confirmloop_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

var errFailed = fmt.Errorf("INTERNAL: no such order: %w", halfmsg.ErrCallFailed)

// failsFor is a producer that fails each call with one of the ids, and commits the rest.
func failsFor(poison ...string) confirm {
	return func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
		for _, id := range poison {
			if slices.Contains(ids, id) {
				return nil, errFailed
			}
		}
		return all(ids, halfmsg.VerdictCommitted), nil
	}
}

// Messages without a verdict do not keep the others of the call from theirs.
func TestPoisonMessageStopsNoOther(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(failsFor("00000", "00042", "00199"))
		h.have("orders", numbered(200)...)
		h.pass()
		if got := len(h.sentIDs()); got != 197 {
			t.Errorf("%d of 197 were sent", got)
		}
		name := halfmsg.Name{Producer: "orders", ID: "00042"}
		got := h.wantState(name, halfmsg.Pending)
		if got.LastError != errFailed.Error() || got.ConfirmAttempts != 0 || time.Until(got.DueAt) > 5*time.Second {
			t.Errorf("%+v", got)
		}

		// It is asked less and less.
		before := h.asks()
		h.run(time.Hour)
		if asked := h.asks() - before; asked < 20 || asked > 120 {
			t.Errorf("asked %d times in an hour about three messages, want each about every five minutes in the end", asked)
		}
		h.answers(nil)
		h.run(6 * time.Minute)
		h.wantState(name, halfmsg.Sendable)
	})
}

// Where nothing else is asked about for long, a message that the producer fails for does not make it one that is away.
func TestPoisonMessageDelaysNoOrder(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(failsFor("poison"))
		h.have("orders", "poison")
		h.run(10 * time.Minute)
		if look(h, func() bool { return h.paused }) {
			t.Error("the circuit is open because of a single message")
		}
		h.submit(h.have("orders", "good")...)
		synctest.Wait()
		if got := h.sentIDs(); !slices.Equal(got, []string{"good"}) {
			t.Errorf("sent at once: %v, want the good message", got)
		}
	})
}

// A producer that fails every call counts as away: after a few questions its circuit opens.
func TestFailingEveryCallOpensTheCircuit(t *testing.T) {
	inHouse(t, confirmloop.Config{CallsPerProducer: 1}, func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errFailed })
		names := h.have("orders", numbered(1000)...)
		h.pass()
		if !look(h, func() bool { return h.paused }) || h.asks() > 20 {
			t.Errorf("circuit open: %t, after %d questions", h.paused, h.asks())
		}
		before := h.asks()
		h.run(time.Hour)
		// A try each minute or somewhat more often, down to one message: eight more calls each.
		if asked := h.asks() - before; asked > 9*90 {
			t.Errorf("asked %d times in an hour", asked)
		}
		for _, name := range names {
			if got := h.wantState(name, halfmsg.Pending); got.ConfirmAttempts != 0 {
				t.Fatalf("%+v", got)
			}
		}
		h.answers(nil)
		h.run(6 * time.Minute)
		if got := h.store.Count(halfmsg.Sendable); got != 1000 {
			t.Errorf("%d are sendable when the producer answers again", got)
		}
	})
}

// Nor is a producer that fails every call missed where there is an order only now and then.
func TestFailingEveryOrderOpensTheCircuit(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(failsFor(numbered(5)...))
		for _, id := range numbered(5) {
			h.submit(h.have("orders", id)...)
			time.Sleep(time.Minute)
		}
		if !look(h, func() bool { return h.paused }) {
			t.Error("the producer failed for five orders in turn, and its circuit is not open")
		}
	})
}

// What a producer has answered in between says that it is well.
func TestAnswerBetweenTwoFailuresIsHeard(t *testing.T) {
	inHouse(t, confirmloop.Config{}.WithBreakerFailures(2), func(h *house) {
		h.answers(failsFor("1", "3"))
		for _, id := range []string{"1", "2", "3"} {
			h.submit(h.have("orders", id)...)
			synctest.Wait()
		}
		if look(h, func() bool { return h.paused }) {
			t.Error("the circuit is open, though the producer has answered between two failures")
		}
	})
}

// A producer may take so long to fail a call that a lease does not last for all its messages. The messages of other
// producers get their verdicts, and this producer is asked no more often.
func TestSlowFailuresEnd(t *testing.T) {
	const slow, margin = 3500 * time.Millisecond, 6 * time.Second
	slowly := func(answer confirm) confirm {
		return func(ctx context.Context, to halfmsg.Target, ids []string, final bool) (verdicts, error) {
			said, err := answer(ctx, to, ids, final)
			if err != nil {
				time.Sleep(slow)
			}
			return said, err
		}
	}
	t.Run("for every message", func(t *testing.T) {
		inHouse(t, confirmloop.Config{Margin: margin}, func(h *house) {
			h.answers(slowly(failsFor(numbered(1000)...)))
			h.have("orders", numbered(1000)...)
			h.run(time.Minute)
			if !look(h, func() bool { return h.paused }) {
				t.Error("the circuit is not open")
			}
			h.run(9 * time.Minute)
			if asked := h.asks(); asked > 100 {
				t.Errorf("asked %d times in ten minutes", asked)
			}
		})
	})
	t.Run("for one", func(t *testing.T) {
		inHouse(t, confirmloop.Config{Margin: margin}, func(h *house) {
			h.answers(slowly(failsFor("00000")))
			h.have("orders", numbered(200)...)
			h.run(2 * time.Minute)
			if got := len(h.sentIDs()); got != 199 {
				t.Errorf("%d of 199 were sent in two minutes", got)
			}

			// The batches grow again.
			h.answers(nil)
			before := h.asks()
			h.have("orders", tenThousands(2000)...)
			h.run(time.Minute)
			if asked := h.asks() - before; asked > 30 {
				t.Errorf("%d calls for 2,000 messages", asked)
			}
		})
	})
}

// When the lease ends before quarantined messages have their turn, they are put off with the reason, and asked one by
// one the next time.
func TestALeaseThatEndsAmongSuspects(t *testing.T) {
	inHouse(t, confirmloop.Config{Margin: 6 * time.Second}, func(h *house) {
		var largest atomic.Int64
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			largest.Store(max(largest.Load(), int64(len(ids))))
			time.Sleep(5 * time.Second)
			return nil, errFailed
		})
		names := h.have("orders", numbered(200)...)
		if _, err := h.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(26 * time.Second) // one call about all, and four times two about one
		synctest.Wait()
		for _, name := range names {
			if got := h.wantState(name, halfmsg.Pending); got.LastError != errFailed.Error() || got.LeaseOwner != "" {
				t.Fatalf("%+v was not put off", got)
			}
		}
		largest.Store(0)
		time.Sleep(2 * time.Second)
		if _, err := h.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := largest.Load(); n != 1 {
			t.Errorf("the next call is about %d messages, want 1", n)
		}
		time.Sleep(time.Minute)
	})
}

// The same few messages tell nothing new of their producer, however often it fails for them.
func TestFewPoisonMessagesDelayNoOrder(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(failsFor(numbered(5)...))
		h.submit(h.have("orders", "well")...)
		for _, id := range numbered(5) {
			h.submit(h.have("orders", id)...)
			synctest.Wait()
			h.submit(h.have("orders", "between "+id)...)
			synctest.Wait()
		}
		h.run(10 * time.Minute)
		if look(h, func() bool { return h.paused }) {
			t.Error("the circuit is open because of five known messages")
		}
	})
}

// tenThousands are ids that numbered does not have.
func tenThousands(n int) (ids []string) {
	for _, id := range numbered(n) {
		ids = append(ids, "1"+id)
	}
	return ids
}

func TestOnePoisonRecordStopsNothing(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			if slices.Contains(ids, "00042") {
				panic("poison")
			}
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		h.have("orders", numbered(200)...)
		h.pass()
		if got := len(h.sentIDs()); got != 199 {
			t.Errorf("%d of 199 were sent", got)
		}
		got := h.wantState(halfmsg.Name{Producer: "orders", ID: "00042"}, halfmsg.Pending)
		if got.LastError != "panic: poison" || time.Until(got.DueAt) < 2*time.Minute || got.ConfirmAttempts != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// The backlog of a producer that takes long yields more than that of a prompt one.
func TestAnswersWithoutDelayArePrompt(t *testing.T) {
	for takes, want := range map[time.Duration]bool{
		0: true, 249 * time.Millisecond: true, 250 * time.Millisecond: false, 2 * time.Second: false,
	} {
		t.Run(takes.String(), func(t *testing.T) {
			inHouse(t, confirmloop.Config{}, func(h *house) {
				h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
					time.Sleep(takes)
					return all(ids, halfmsg.VerdictCommitted), nil
				})
				h.have("orders", "1")
				h.pass()
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if len(h.sent) != 1 || h.sent[0].Prompt != want {
					t.Errorf("sent %+v, want 1 message with prompt %t", h.sent, want)
				}
			})
		})
	}
}
