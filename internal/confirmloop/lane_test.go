package confirmloop_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

func TestFullMemoryGrantsEachABatch(t *testing.T) {
	inHouse(t, confirmloop.Config{Batch: 10}.WithQueue(50), func(h *house) {
		h.answers(hanging("slow", func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			return all(ids, halfmsg.VerdictCommitted), nil
		}))
		h.have("slow", numbered(500)...)
		h.pass()
		h.submit(h.have("slow", numbered(500)...)...)
		quick := h.have("quick", "1")[0]
		h.pass()
		h.wantState(quick, halfmsg.Sendable)
	})
}

func TestFullMemoryBoundsTheBacklog(t *testing.T) {
	inHouse(t, confirmloop.Config{Batch: 10}.WithQueue(50), func(h *house) {
		h.answers(hanging("slow", nil))
		h.have("slow", numbered(500)...)
		for range 100 {
			h.pass()
		}
		if n := h.Waiting(); n < 10 || n > 60 {
			t.Errorf("%d messages wait in memory, where 50 and a batch may", n)
		}
	})
}

func TestHangingProducerDelaysNoOther(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(hanging("slow", func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			return all(ids, halfmsg.VerdictCommitted), nil
		}))
		h.have("slow", numbered(5000)...)
		h.run(10 * time.Second)
		for range 20 {
			due := time.Now()
			name := h.have("quick", due.Format("150405.000"))[0]
			for h.store.Peek(name).State != halfmsg.Sendable {
				if time.Since(due) > time.Second {
					t.Fatal("a healthy producer's message waits for a hanging one's")
				}
				h.run(time.Second)
			}
		}
		if got := h.store.Count(halfmsg.Pending); got != 5000 {
			t.Errorf("%d of the hanging producer's messages are pending", got)
		}
		if h.Waiting() > 2000 {
			t.Errorf("%d wait in memory", h.Waiting())
		}
	})
}

// hanging makes one producer answer nothing until the callback client's timeout.
func hanging(producer string, others confirm) confirm {
	return func(ctx context.Context, target halfmsg.Target, ids []string, final bool) (verdicts, error) {
		if target.Producer != producer {
			return others(ctx, target, ids, final)
		}
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

func TestConfirmCallsAreBounded(t *testing.T) {
	inHouse(t, confirmloop.Config{CallsPerProducer: 2, Batch: 10}, func(h *house) {
		gate := make(chan struct{})
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			if len(ids) > 10 {
				t.Errorf("a batch of %d", len(ids))
			}
			<-gate
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		h.submit(h.have("orders", numbered(100)...)...)
		synctest.Wait()
		if got := h.asks(); got != 2 {
			t.Errorf("%d calls under way, want 2", got)
		}
		close(gate)
		synctest.Wait()
		if got := len(h.sentIDs()); got != 100 {
			t.Errorf("%d were sent", got)
		}
	})
}

// A producer's calls are few however many targets it has, and however close upon another its messages come.
func TestCallsOfAllTargetsAreBounded(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // all are offered before any is asked about
	inHouse(t, confirmloop.Config{CallsPerProducer: 2}, func(h *house) {
		gate := make(chan struct{})
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			<-gate
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		for i := range 10 {
			m := message("orders", fmt.Sprint(i))
			m.CallbackTarget = fmt.Sprintf("replica%d:9000", i)
			h.store.Create(h.t.Context(), []halfmsg.Message{m})
			h.submit(m.Name)
		}
		synctest.Wait()
		if got := h.asks(); got != 2 {
			t.Errorf("%d calls under way, want 2", got)
		}
		close(gate)
		synctest.Wait()
		if got := len(h.sentIDs()); got != 10 {
			t.Errorf("%d were sent", got)
		}
	})
}

// One pass fills the room, and each further pass is asked for when there is room again.
func TestWakeUpsWorkOffABacklog(t *testing.T) {
	inHouse(t, confirmloop.Config{QueuePerProducer: 100, Batch: 10}, func(h *house) {
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			time.Sleep(time.Millisecond) // the pass ends before the first answer
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		h.have("orders", numbered(1000)...)
		h.pass()
		if got := h.asks(); got != 4 || h.Waiting() < 50 || h.Waiting() > 100 {
			t.Errorf("after a single pass %d calls are under way, and %d messages wait", got, h.Waiting())
		}
		h.passWhenWoken(time.Second)
		if got := h.store.Count(halfmsg.Sendable); got != 1000 {
			t.Errorf("%d of 1,000 were confirmed within a second", got)
		}
	})
}

// When half of the room is free again of a producer for which there was none, a pass is asked for, once.
func TestRoomAsksForAPass(t *testing.T) {
	for name, fill := range map[string]func(h *house){
		"a pass left some": func(h *house) {
			h.have("orders", numbered(20)...)
			for range 20 {
				h.pass()
			}
		},
		"an offer found no room": func(h *house) {
			for _, id := range numbered(12) {
				h.submit(h.have("orders", id)...)
				synctest.Wait()
			}
		},
		"a pass found no room": func(h *house) {
			for _, id := range numbered(11) {
				h.submit(h.have("orders", id)...)
				synctest.Wait()
			}
			h.have("orders", "silent")
			h.pass()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, confirmloop.Config{QueuePerProducer: 10, Batch: 1, CallsPerProducer: 1}, func(h *house) {
				gate := make(chan struct{})
				h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
					<-gate
					return all(ids, halfmsg.VerdictCommitted), nil
				})
				fill(h)
				if h.Waiting() != 10 {
					t.Errorf("%d wait, want as many as there is room for", h.Waiting())
				}
				// When a call ends, those before it have left as many places.
				for ended := range 10 {
					gate <- struct{}{}
					synctest.Wait()
					want := 0
					if ended >= 5 {
						want = 1
					}
					if got := look(h, func() int { return h.wakes }); got != want {
						t.Errorf("with %d places free when a call ends, %d passes were asked for, want %d", ended, got, want)
					}
				}
				close(gate)
			})
		})
	}
}

func TestPassTakesBatchOfEachProducer(t *testing.T) {
	inHouse(t, confirmloop.Config{Batch: 10, CallsPerProducer: 1}, func(h *house) {
		h.answers(func(ctx context.Context, _ halfmsg.Target, _ []string, _ bool) (verdicts, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		h.have("orders", numbered(100)...)
		h.have("stock", numbered(5)...)
		more, err := h.Pass(h.t.Context())
		synctest.Wait()
		// Ten of the orders are being asked about, as are the five.
		if err != nil || !more || h.Waiting() != 0 {
			t.Errorf("more %t, %d wait behind the first batches, %v", more, h.Waiting(), err)
		}
		h.pass()
		if h.Waiting() != 90 {
			t.Errorf("%d wait in the end, want 90: there is room for all", h.Waiting())
		}
		ctx, cancel := context.WithTimeout(h.t.Context(), time.Second)
		defer cancel()
		_ = h.Close(ctx) // the producers hang
	})
}

func TestMessagesWithoutRoomAreHandedBack(t *testing.T) {
	inHouse(t, confirmloop.Config{QueuePerProducer: 10, Batch: 5, CallsPerProducer: 1}, func(h *house) {
		gate := make(chan struct{})
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			<-gate
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		names := h.have("orders", numbered(100)...)
		h.submit(names[:5]...)
		synctest.Wait() // they are under way now, and leave the room to others
		for _, name := range names[5:] {
			h.submit(name)
		}
		if h.Waiting() != 10 || h.fate("released stored") != 85 {
			t.Errorf("%d wait in memory, %v; want 10, and 85 handed back", h.Waiting(), h.fates)
		}
		close(gate)
		h.run(5 * time.Second)
		if got := h.store.Count(halfmsg.Sendable); got != 100 {
			t.Errorf("%d of 100 were confirmed in the end", got)
		}
	})
}

func TestLargeBodiesFillTheRoomSooner(t *testing.T) {
	inHouse(t, confirmloop.Config{CallsPerProducer: 1}.WithBytesPerProducer(10<<20), func(h *house) {
		h.answers(hanging("orders", nil))
		for _, id := range numbered(400) {
			m := message("orders", id)
			m.Body = make([]byte, 1<<20)
			h.store.Create(h.t.Context(), []halfmsg.Message{m})
			h.submit(m.Name)
		}
		if got := h.Waiting(); got > 12 {
			t.Errorf("%d MiB wait in room for 10", got)
		}
	})
}

// On a busy machine Submits are ready to run that bring messages for the same question.
func TestReadySubmitsShareACall(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so busy that one has to wait for another
	inHouse(t, confirmloop.Config{}, func(h *house) {
		const rounds, submits = 20, 10
		for round := range rounds {
			var wg sync.WaitGroup
			for i := range submits {
				names := h.have("orders", fmt.Sprintf("%d-%d", round, i))
				wg.Go(func() { h.submit(names...) })
			}
			wg.Wait()
			synctest.Wait()
		}
		// The scheduler takes things out of turn now and then.
		if n := h.asks(); n > 2*rounds {
			t.Errorf("%d questions for %d rounds of %d Submits", n, rounds, submits)
		}
	})
}
