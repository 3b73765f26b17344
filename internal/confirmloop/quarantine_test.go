package confirmloop_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/must"
)

// Messages that a producer fails for come all at once, in any number. The orders after them are still decided at once.
func TestManyPoisonMessagesDelayNoOrder(t *testing.T) {
	for name, come := range map[string]func(h *house, ids []string){
		"one by one": func(h *house, ids []string) {
			for _, id := range ids {
				h.submit(h.have("orders", id)...)
			}
		},
		"together": func(h *house, ids []string) { h.submit(h.have("orders", ids...)...) },
		"silent":   func(h *house, ids []string) { h.have("orders", ids...) },
	} {
		for n, orders := range map[int]int{10: 12, 300: 12, 2000: 4} {
			t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) {
				inHouse(t, confirmloop.Config{}, func(h *house) {
					h.answers(failsFor(numbered(n)...))
					come(h, numbered(n))
					for i := range orders {
						h.run(15 * time.Second)
						order := h.have("orders", fmt.Sprintf("order %d", i))[0]
						h.submit(order)
						synctest.Wait()
						h.wantState(order, halfmsg.Sendable)
						if look(h, func() bool { return h.paused }) {
							t.Fatalf("after order %d the circuit is open", i)
						}
					}
				})
			})
		}
	}
}

// What stands in one call with them has its verdict soon.
func TestGoodMessageLeavesQuarantineSoon(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(failsFor(numbered(10)...))
		h.submit(h.have("orders", append(numbered(10), "order")...)...)
		synctest.Wait()
		if got := h.sentIDs(); !slices.Equal(got, []string{"order"}) {
			t.Errorf("sent %v", got)
		}
	})
}

// However long each call about a quarantined message takes, there is a call for an order.
func TestQuarantineLeavesCallsToOthers(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			if slices.Contains(ids, "order") {
				return all(ids, halfmsg.VerdictCommitted), nil
			}
			time.Sleep(3 * time.Second)
			return nil, errFailed
		})
		h.submit(h.have("orders", numbered(100)...)...)
		time.Sleep(4 * time.Second) // the call about all of them has failed, and there are some about one
		h.submit(h.have("orders", "order")...)
		synctest.Wait()
		if got := h.sentIDs(); !slices.Equal(got, []string{"order"}) {
			t.Errorf("sent %v at once", got)
		}
		time.Sleep(time.Minute)
	})
}

// The quarantine fills no more than a part of the queue, however long its calls take; the rest waits in the store.
func TestQuarantineLeavesRoomToOthers(t *testing.T) {
	inHouse(t, confirmloop.Config{QueuePerProducer: 40, CallsPerProducer: 2}, func(h *house) {
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			if len(ids) == 1 {
				time.Sleep(3 * time.Second)
			}
			return nil, errFailed
		})
		names := h.have("orders", numbered(40)...)
		h.submit(names...)
		synctest.Wait()
		var putOff int
		for _, name := range names {
			if got := h.wantState(name, halfmsg.Pending); got.LeaseOwner == "" && got.LastError == errFailed.Error() {
				putOff++
			}
		}
		// One is asked about, of those that wait or besides them.
		if h.Waiting() > 10 || putOff < 29 {
			t.Errorf("%d wait in memory, want a quarter of 40 at most; %d were put off", h.Waiting(), putOff)
		}
		time.Sleep(time.Minute)
	})
}

// Quarantined messages back off while the circuit is open, or thousands of them would keep the store busy.
func TestQuarantinedMessagesBackOff(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(failsFor(numbered(12)...))
		for _, id := range numbered(12) {
			h.submit(h.have("orders", "before "+id)...)
			synctest.Wait()
			h.submit(h.have("orders", id)...)
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		h.pass() // each fails once more, and the last leaves them alone
		name := halfmsg.Name{Producer: "orders", ID: "00000"}
		h.submit(name)
		synctest.Wait()
		if got := h.wantState(name, halfmsg.Pending); time.Until(got.DueAt) < 2*time.Minute {
			t.Errorf("the message comes back after %v", time.Until(got.DueAt))
		}
	})
}

// After any answer a message is asked about together with the others again.
func TestAnswerEndsTheQuarantine(t *testing.T) {
	inHouse(t, confirmloop.Config{Backoff: backoff.Steps{time.Second}}, func(h *house) {
		var calls [][]string
		h.answers(failsFor("1"))
		h.submit(h.have("orders", "1")...)
		synctest.Wait()
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			h.mu.Lock() // the quarantined message and the other are asked about in parallel
			defer h.mu.Unlock()
			calls = append(calls, slices.Sorted(slices.Values(ids)))
			return all(ids, halfmsg.VerdictUnknown), nil
		})
		time.Sleep(time.Second)
		h.have("orders", "2")
		h.pass()
		time.Sleep(time.Second)
		h.pass()
		if len(calls) != 3 || len(calls[0]) != 1 || !slices.Equal(calls[2], []string{"1", "2"}) {
			t.Errorf("asked about %v, want each message apart and then all together", calls)
		}
	})
}

// A producer that failed every call and comes back is asked at once, whichever message shows that it is back.
func TestReturnedProducerIsAskedAtOnce(t *testing.T) {
	t.Run("a quarantined message shows it", func(t *testing.T) {
		inHouse(t, confirmloop.Config{}, func(h *house) {
			h.answers(failsFor(numbered(20)...))
			for _, id := range numbered(20) {
				time.Sleep(time.Minute)
				h.submit(h.have("orders", id)...)
				synctest.Wait() // the last one has just begun another pause
			}
			if !look(h, func() bool { return h.paused }) {
				t.Fatal("the circuit is not open")
			}
			h.answers(nil)
			name := halfmsg.Name{Producer: "orders", ID: "00000"}
			h.submit(name)
			synctest.Wait()
			h.wantState(name, halfmsg.Sendable)
			order := h.have("orders", "order")[0]
			h.submit(order)
			synctest.Wait()
			h.wantState(order, halfmsg.Sendable)
			if look(h, func() bool { return h.paused }) {
				t.Error("the circuit is still reported open")
			}
		})
	})
	t.Run("an order shows it", func(t *testing.T) {
		inHouse(t, confirmloop.Config{}, func(h *house) {
			h.answers(failsFor(numbered(20)...))
			names := h.have("orders", numbered(20)...)
			h.submit(names...)
			synctest.Wait()
			before := h.asks()
			h.submit(names[0])
			synctest.Wait()
			if h.asks() != before {
				t.Fatal("the circuit of the quarantine is not open")
			}
			h.answers(nil)
			h.submit(h.have("orders", "order")...)
			synctest.Wait()
			h.submit(names[0])
			synctest.Wait()
			h.wantState(names[0], halfmsg.Sendable)
		})
	})
}

// Quarantined messages of an unreachable producer are asked about rarely, as all its messages are.
func TestUnreachableQuarantineIsAskedRarely(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(failsFor(numbered(100)...))
		h.submit(h.have("orders", numbered(100)...)...)
		synctest.Wait()
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		h.have("orders", "order")
		before := h.asks()
		h.run(time.Hour)
		if asked := h.asks() - before; asked > 2*100 || !look(h, func() bool { return h.paused }) {
			t.Errorf("asked %d times in an hour", asked)
		}
		h.answers(nil)
		h.run(6 * time.Minute)
		if got := h.store.Count(halfmsg.Sendable); got != 101 {
			t.Errorf("%d of 101 are sendable when the producer is back", got)
		}
	})
}

// A probe with a quarantined message claims no other messages of its unreachable producer.
func TestQuarantineProbeClaimsNoOtherMessages(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(failsFor("suspect"))
		h.submit(h.have("orders", "suspect")...)
		synctest.Wait()
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		for _, id := range numbered(3) {
			h.submit(h.have("orders", id)...)
			synctest.Wait()
		}
		silent := h.have("orders", "silent")[0]
		h.pass()
		if got := h.wantState(silent, halfmsg.Pending); got.LeaseOwner != "" || got.DueAt.After(time.Now()) {
			t.Errorf("a pass claimed %+v", got)
		}
	})
}

// When the messages behind an open circuit are discarded, the circuit stays open.
func TestForgottenQuarantineEndsNoPause(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(failsFor(numbered(20)...))
		suspects := h.have("orders", numbered(20)...)
		h.submit(suspects...)
		synctest.Wait()
		h.store.Discard(h.t.Context(), suspects, halfmsg.Pending)
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		h.have("orders", "order")
		h.run(10 * time.Minute)
		if !look(h, func() bool { return h.paused }) {
			t.Error("the quarantined producer is reported as called again")
		}
	})
}

// A try that tells nothing of the producer, such as one that panics, leaves the next try to the next message.
func TestPanickedProbeLetsTheNextProbe(t *testing.T) {
	for name, failure := range map[string]error{"orders": errAway, "suspects": errFailed} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, confirmloop.Config{}, func(h *house) {
				h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, failure })
				names := h.have("orders", numbered(20)...)
				h.submit(names[:13]...) // one call about all, and twelve about one each, where it fails them
				for _, name := range names[13:17] {
					h.submit(name)
					synctest.Wait()
				}
				time.Sleep(10 * time.Second) // the pauses are over
				h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { panic("oops") })
				h.submit(names[0])
				synctest.Wait()
				if got := h.wantState(names[0], halfmsg.Pending); got.LastError != "panic: oops" {
					t.Fatalf("%+v was not asked about", got)
				}
				h.answers(nil)
				h.submit(names[1])
				synctest.Wait()
				h.wantState(names[1], halfmsg.Sendable)
			})
		})
	}
}

// What was about to be asked about one by one is handed back when the instance stops.
func TestCloseHandsBackTheQuarantine(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		gate := make(chan struct{})
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) {
			<-gate
			return nil, errFailed
		})
		names := h.have("orders", numbered(50)...)
		h.submit(names...)
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- h.Close(context.Background()) }()
		synctest.Wait()
		close(gate)
		must.Succeed(t, <-closed)
		for _, name := range names {
			if got := h.wantState(name, halfmsg.Pending); got.LeaseOwner != "" || got.DueAt.After(time.Now()) {
				t.Fatalf("%+v was not handed back", got)
			}
		}
		if h.asks() != 1 || h.Waiting() != 0 {
			t.Errorf("asked %d times, %d wait", h.asks(), h.Waiting())
		}
	})
}

// A quarantine queue without any room would put its messages off for ever.
func TestQuarantineHasRoomForOne(t *testing.T) {
	inHouse(t, confirmloop.Config{QueuePerProducer: 1, CallsPerProducer: 1}, func(h *house) {
		h.answers(failsFor("order"))
		name := h.have("orders", "order")[0]
		h.submit(name)
		synctest.Wait()
		h.answers(failsFor())
		h.run(5 * time.Minute)
		h.wantState(name, halfmsg.Sendable)
	})
}
