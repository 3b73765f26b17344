package confirmloop_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// calls are how many messages the calls to producers were about, one after the other, and how many were under way at
// once.
type calls struct {
	mu       sync.Mutex
	about    []int
	now, top int
}

// of notes the calls that are answered like this.
func (c *calls) of(answer confirm) confirm {
	return func(ctx context.Context, to halfmsg.Target, ids []string, final bool) (verdicts, error) {
		c.mu.Lock()
		c.about = append(c.about, len(ids))
		c.now++
		c.top = max(c.top, c.now)
		c.mu.Unlock()
		defer func() { c.mu.Lock(); c.now--; c.mu.Unlock() }()
		return answer(ctx, to, ids, final)
	}
}

// since returns the calls since it was asked last.
func (c *calls) since() (about []int, top int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	about, top = c.about, c.top
	c.about, c.top = nil, c.now
	return about, top
}

// slowly has each call take a second.
func slowly(answer confirm) confirm {
	return func(ctx context.Context, to halfmsg.Target, ids []string, final bool) (verdicts, error) {
		time.Sleep(time.Second)
		return answer(ctx, to, ids, final)
	}
}

// Quarantined messages that are due together are asked about one by one, also where each was found alone. The batches
// grow as the producer answers.
func TestReturningQuarantineBatchesDouble(t *testing.T) {
	inHouse(t, confirmloop.Config{CallsPerProducer: 1}.WithBreakerFailures(1000), func(h *house) {
		var noted calls
		h.answers(failsFor(numbered(9)...))
		names := h.have("orders", numbered(9)...)
		for _, name := range names {
			h.submit(name)
			synctest.Wait()
		}
		h.answers(noted.of(failsFor()))
		h.submit(names...)
		synctest.Wait()
		if about, _ := noted.since(); !slices.Equal(about, []int{1, 2, 4, 2}) {
			t.Errorf("the calls were about %v, want 1, and then twice as many each time", about)
		}
		h.submit(h.have("orders", tenThousands(30)...)...)
		synctest.Wait()
		if about, _ := noted.since(); !slices.Equal(about, []int{30}) {
			t.Errorf("later calls were about %v, want all together", about)
		}
	})
}

// So are those that try a producer again after a pause.
func TestQuarantineProbesSingleMessages(t *testing.T) {
	inHouse(t, confirmloop.Config{CallsPerProducer: 1}, func(h *house) {
		h.answers(failsFor(numbered(20)...))
		names := h.have("orders", numbered(20)...)
		h.submit(names[:13]...)
		synctest.Wait() // twelve calls about one each have failed, and the circuit is open
		time.Sleep(2 * time.Second)
		var noted calls
		h.answers(noted.of(failsFor(numbered(20)...)))
		h.submit(names[:6]...)
		synctest.Wait()
		if about, _ := noted.since(); !slices.Equal(about, []int{1, 1, 1, 1}) {
			t.Errorf("calls about %v try again, want four about 1 message each", about)
		}
	})
}

// A call that fails has its messages asked about one by one, however large the batches of the quarantine were.
func TestEachFailureShrinksQuarantineBatches(t *testing.T) {
	inHouse(t, confirmloop.Config{CallsPerProducer: 1, Batch: 8}, func(h *house) {
		var noted calls
		h.answers(noted.of(failsFor("poison")))
		h.submit(h.have("orders", append(numbered(7), "poison")...)...)
		synctest.Wait()
		if about, _ := noted.since(); len(about) > 8 || about[0] != 8 || about[1] != 1 {
			t.Errorf("the calls were about %v, want all, 1, and then more and more", about)
		}
		h.answers(noted.of(failsFor("poison", "more poison")))
		h.submit(h.have("orders", append(tenThousands(7), "more poison")...)...)
		synctest.Wait()
		if about, _ := noted.since(); len(about) < 2 || about[0] != 8 || about[1] != 1 {
			t.Errorf("the calls were about %v, want all and then 1", about)
		}
		if got := len(h.sentIDs()); got != 14 {
			t.Errorf("%d of 14 were sent", got)
		}
	})
}

// What is asked about apart is asked about with one call at a time, and one by one again when the producer fails that.
func TestBypassMakesOneCallAtTime(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		var noted calls
		answer := slowly(failsFor("poison", "more poison"))
		h.answers(noted.of(answer))
		h.submit(h.have("orders", "poison")...)
		time.Sleep(2 * time.Second)
		h.submit(h.have("orders", append(numbered(29), "more poison")...)...)
		time.Sleep(1500 * time.Millisecond)
		if about, top := noted.since(); !slices.Equal(about, []int{1, 1, 29}) || top != 1 {
			t.Errorf("calls about %v, %d at once, want 1, 1 and then the others", about, top)
		}
		time.Sleep(time.Second) // the last one has failed, and those that it was about are asked about one by one
		h.answers(func(ctx context.Context, to halfmsg.Target, ids []string, final bool) (verdicts, error) {
			if slices.Contains(numbered(29), ids[0]) || ids[0] == "more poison" {
				return answer(ctx, to, ids, final)
			}
			return noted.of(answer)(ctx, to, ids, final)
		})
		noted.since()
		h.submit(h.have("orders", tenThousands(10)...)...)
		synctest.Wait()
		if about, _ := noted.since(); !slices.Equal(about, []int{1}) {
			t.Errorf("after the failure a call is about %v, want 1", about)
		}
		time.Sleep(time.Minute)
	})
}

// When the producer has answered, nothing is asked about apart any more, also while a call is under way from before.
func TestAnswerEndsTheBypass(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		var noted calls
		answer := failsFor("poison")
		h.answers(noted.of(func(ctx context.Context, to halfmsg.Target, ids []string, final bool) (verdicts, error) {
			if ids[0] == "slow" {
				time.Sleep(time.Second)
			}
			return answer(ctx, to, ids, final)
		}))
		for _, id := range []string{"slow", "poison", "order"} {
			h.submit(h.have("orders", id)...)
			synctest.Wait()
		}
		noted.since()
		h.submit(h.have("orders", numbered(30)...)...)
		synctest.Wait()
		if about, _ := noted.since(); !slices.Equal(about, []int{30}) {
			t.Errorf("the calls were about %v, want all together", about)
		}
		time.Sleep(time.Minute)
	})
}

// Nor does that a lane apart was there before make the first call there about more than one.
func TestNewBypassBeginsWithSingleMessage(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		var noted calls
		h.answers(noted.of(failsFor("poison", "more poison")))
		for _, id := range []string{"poison", "order", "more poison"} {
			h.submit(h.have("orders", id)...)
			synctest.Wait()
		}
		noted.since()
		h.submit(h.have("orders", numbered(30)...)...)
		synctest.Wait()
		if about, _ := noted.since(); !slices.Equal(about, []int{1, 29}) {
			t.Errorf("the calls were about %v, want 1 and then the others", about)
		}
	})
}

// The calls about quarantined messages are half of all; the other half is for orders.
func TestQuarantineHasHalfOfTheCalls(t *testing.T) {
	for calls, half := range map[int]int{1: 1, 2: 1, 4: 2, 8: 4} {
		inHouse(t, confirmloop.Config{CallsPerProducer: calls}, func(h *house) {
			now, top := 0, 0
			h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
				if slices.Contains(ids, "order") {
					return all(ids, halfmsg.VerdictCommitted), nil
				}
				h.mu.Lock()
				now++
				top = max(top, now)
				h.mu.Unlock()
				time.Sleep(3 * time.Second)
				h.mu.Lock()
				now--
				h.mu.Unlock()
				return nil, errFailed
			})
			h.submit(h.have("orders", numbered(100)...)...)
			time.Sleep(4 * time.Second) // the call about all of them has failed, and there are some about one
			order := h.have("orders", "order")[0]
			h.submit(order)
			synctest.Wait()
			if calls > 1 {
				h.wantState(order, halfmsg.Sendable)
			}
			time.Sleep(time.Minute)
			if got := look(h, func() int { return top }); got != half {
				t.Errorf("%d of %d calls were about quarantined messages at once, want %d", got, calls, half)
			}
		})
	}
}

// Quarantined messages do not wait for the final question that follows the failed call: a producer may take long over
// that question.
func TestQuarantineAwaitsNoFinalCall(t *testing.T) {
	inHouse(t, confirmloop.Config{Attempts: 1, Backoff: backoff.Steps{time.Second}}, func(h *house) {
		gate := make(chan struct{})
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, final bool) (verdicts, error) {
			switch {
			case final:
				<-gate
			case slices.Contains(ids, "old"):
			case len(ids) > 1:
				return nil, errFailed
			default:
				return all(ids, halfmsg.VerdictCommitted), nil
			}
			return all(ids, halfmsg.VerdictUnknown), nil
		})
		h.have("orders", "old")
		h.pass()
		time.Sleep(time.Second)
		h.have("orders", "1", "2")
		if _, err := h.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := h.sentIDs(); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("sent %v while the final question is open, want the messages of the failed call", got)
		}
		close(gate)
		synctest.Wait()
	})
}

// The circuit of a producer is reported once when it opens and once when it closes. The circuit of the quarantine is
// not reported.
func TestCircuitIsReportedOnce(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		told := func(what string, want ...bool) {
			t.Helper()
			synctest.Wait()
			if got := look(h, func() []bool { told := h.told; h.told = nil; return told }); !slices.Equal(got, want) {
				t.Errorf("%s: reported circuits: %v, want %v", what, got, want)
			}
		}
		h.answers(failsFor(numbered(50)...))
		suspects := h.have("orders", numbered(50)...)
		h.submit(suspects...)
		told("the circuit of the quarantine opens")
		h.answers(nil)
		h.submit(h.have("orders", "order")...)
		told("an answer, and the quarantine is asked about again")
		h.submit(suspects[0])
		told("a quarantined message has its answer")
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		for _, id := range numbered(8) {
			h.submit(h.have("orders", "1"+id)...)
			synctest.Wait()
		}
		told("the producer is away", true)
		h.run(10 * time.Minute)
		told("and stays away")
		h.answers(nil)
		h.run(2 * time.Minute)
		told("the producer is back", false)
		h.submit(h.have("orders", "another order")...)
		told("and stays")
	})
}
