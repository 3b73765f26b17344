package confirmloop_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// An order that shares a call with quarantined messages does not wait for their next probe.
func TestSharedCallSkipsTheQuarantinePause(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(failsFor(numbered(50)...))
		names := h.have("orders", numbered(50)...)
		h.submit(names[:13]...)
		synctest.Wait()
		before := h.asks()
		h.submit(names[0])
		synctest.Wait()
		if h.asks() != before {
			t.Fatal("the circuit of the quarantine is not open")
		}
		time.Sleep(time.Millisecond)
		order := h.have("orders", "order")[0] // which a pass finds together with those that were not submitted
		h.pass()
		h.wantState(order, halfmsg.Sendable)
	})
}

// What is submitted while a producer fails calls is asked about by itself, and together when it has answered.
func TestBypassBeginsWithASingleMessage(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		var mu sync.Mutex
		var about []int
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			mu.Lock()
			defer mu.Unlock()
			about = append(about, len(ids))
			if slices.Contains(ids, "poison") {
				return nil, errFailed
			}
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		h.submit(h.have("orders", "poison")...)
		synctest.Wait()
		h.submit(h.have("orders", numbered(31)...)...)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if got := len(h.sentIDs()); got != 31 || !slices.Equal(about, []int{1, 1, 30}) {
			t.Errorf("%d of 31 were sent after calls about %v, want 1 and then the others", got, about)
		}
	})
}

// Fresh messages that a producer fails for say that it is away, also those that were asked about apart.
func TestFailedBypassCallsOpenTheCircuit(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errFailed })
		for i := range 600 {
			h.submit(h.have("orders", fmt.Sprint(i))...)
			time.Sleep(time.Second)
			if i == 2 && !look(h, func() bool { return h.paused }) {
				t.Error("the producer failed for three orders in turn, and its circuit is not open")
			}
		}
		// In the usual lane and apart, each a few and then about one for each pause, which grow to a minute.
		if asked := h.asks(); asked > 60 {
			t.Errorf("asked %d times in ten minutes", asked)
		}
	})
}

// With one call only, an order waits for one call about a quarantined message, and not for the other calls.
func TestQuarantineAndOrdersShareSingleCall(t *testing.T) {
	const slow = 3 * time.Second
	for range 10 { // no luck
		inHouse(t, confirmloop.Config{CallsPerProducer: 1}, func(h *house) {
			suspects := failsFor(numbered(12)...)
			h.answers(func(ctx context.Context, to halfmsg.Target, ids []string, final bool) (verdicts, error) {
				said, err := suspects(ctx, to, ids, final)
				if err != nil {
					time.Sleep(slow)
				}
				return said, err
			})
			h.submit(h.have("orders", numbered(12)...)...)
			time.Sleep(slow + time.Second) // the call about all of them has failed, and the first is asked about by itself
			for i := range 5 {
				order := h.have("orders", fmt.Sprint("order ", i))[0]
				h.submit(order)
				time.Sleep(slow)
				synctest.Wait()
				h.wantState(order, halfmsg.Sendable)
			}
			if asked := h.asks(); asked < 1+5+5 {
				t.Errorf("asked %d times: the orders left the quarantine no turn", asked)
			}
			time.Sleep(time.Minute)
		})
	}
}

// An unreachable producer with quarantined messages only is reported with an open circuit until it is back.
func TestUnreachableQuarantineReportsOpenCircuit(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(failsFor(numbered(20)...))
		h.submit(h.have("orders", append(numbered(20), "order")...)...)
		synctest.Wait()
		paused := func() bool { return h.paused }
		if look(h, paused) {
			t.Fatal("the circuit is reported open, though the producer has answered")
		}
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		h.run(2 * time.Minute)
		for minute := range 30 {
			if !look(h, paused) {
				t.Fatalf("the circuit is not reported open after %d minutes", 2+minute)
			}
			h.run(time.Minute)
		}
		h.answers(nil)
		h.run(6 * time.Minute)
		if got := h.store.Count(halfmsg.Sendable); got != 21 || look(h, paused) {
			t.Errorf("%d of 21 are sendable when the producer is back; circuit reported open: %t", got, look(h, paused))
		}
	})
}
