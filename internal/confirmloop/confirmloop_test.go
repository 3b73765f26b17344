package confirmloop_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/backoff"
	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

var errAway = errors.New("connection refused")

func TestTheVerdictIsStoredThenTheMarkerDeletedThenTheMessageSent(t *testing.T) {
	for name, start := range map[string]func(h *house, name halfmsg.Name){
		"pass":   func(h *house, _ halfmsg.Name) { h.pass() },
		"submit": func(h *house, name halfmsg.Name) { h.submit(name) },
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, confirmloop.Config{}, func(h *house) {
				names := h.have("orders", "1")
				start(h, names[0])
				synctest.Wait()
				h.wantNotes("1 sendable", "delete 1", "send 1")
				if h.sent[0].State != halfmsg.Sendable || h.sent[0].SendableAt.IsZero() {
					t.Errorf("sent %+v", h.sent[0])
				}
				if got := h.store.Peek(names[0]).LeaseUntil; !got.Equal(h.until[0]) {
					t.Errorf("the lease ends at %v, the sender was told %v", got, h.until[0])
				}
			})
		})
	}
}

func TestOnlyCommittedIsSent(t *testing.T) {
	mixed := verdicts{
		"committed": halfmsg.VerdictCommitted, "rolled-back": halfmsg.VerdictRolledBack,
		"unknown": halfmsg.VerdictUnknown, "nonsense": 77, // and "left-out" is not there
	}
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) {
			return mixed, nil
		})
		names := h.have("orders", "committed", "rolled-back", "unknown", "nonsense", "left-out")
		h.pass()
		if got := h.sentIDs(); !slices.Equal(got, []string{"committed"}) {
			t.Errorf("sent %v", got)
		}
		slices.Sort(h.deleted)
		if !slices.Equal(h.deleted, []string{"committed", "rolled-back"}) {
			t.Errorf("deleted the markers of %v", h.deleted)
		}
		h.wantState(names[1], halfmsg.RolledBack)
		for _, name := range names[2:] {
			got := h.wantState(name, halfmsg.Pending)
			wait := time.Until(got.DueAt)
			if got.ConfirmAttempts != 1 || wait < 2500*time.Millisecond || wait > 5*time.Second {
				t.Errorf("%s: %d attempts, due in %v", name, got.ConfirmAttempts, wait)
			}
		}
	})
}

func TestADelayedMessageIsNotSentNow(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		m := message("orders", "1")
		m.Delay = time.Hour
		h.store.Create(h.t.Context(), []halfmsg.Message{m})
		h.submit(m.Name)
		synctest.Wait()
		h.wantNotes("1 sendable", "delete 1")
		got := h.store.Peek(m.Name)
		if got.LeaseOwner != "" || time.Until(got.DueAt) != time.Hour {
			t.Errorf("due in %v, held by %q", time.Until(got.DueAt), got.LeaseOwner)
		}
	})
}

func TestTheFinalQuestionComesAfterTheLastAttempt(t *testing.T) {
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

		// A producer that committed late is still heard.
		h.answers(nil)
		h.submit(names[0])
		synctest.Wait()
		h.wantState(names[0], halfmsg.Sendable)
	})
}

func TestUsualAndFinalQuestionsAreAskedApart(t *testing.T) {
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

func TestOutOfReachUsesUpNothingAndIsAskedLess(t *testing.T) {
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
			t.Errorf("a producer that is down was called %d times in an hour", h.asks())
		}

		h.answers(nil)
		h.run(2 * time.Minute)
		if got := h.store.Count(halfmsg.Sendable); got != 1000 {
			t.Errorf("%d are sendable when it is back", got)
		}
	})
}

func TestWhatCannotBeFoundOutUsesUpNothing(t *testing.T) {
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
		if got := h.wantState(names[0], halfmsg.Pending); got.ConfirmAttempts != 2 {
			t.Errorf("%d attempts are used up, want 2", got.ConfirmAttempts)
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

func TestWhileATargetIsLeftAloneItsMessagesArePutOff(t *testing.T) {
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
			t.Errorf("%d calls try a target that may still be down", h.asks()-3)
		}
		if h.Waiting() > 10 {
			t.Errorf("%d messages were claimed for one call that tries", h.Waiting())
		}
		h.answers(nil)
		h.run(time.Minute)
		if got := h.store.Count(halfmsg.Sendable); got != 503 {
			t.Errorf("%d of 503 are sendable when it is back", got)
		}
	})
}

// Another instance may be the one that finds a producer back, and take all its messages from then on.
func TestATargetThatNobodyNeedsIsNotSaidToBeAwayForEver(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		names := h.have("orders", numbered(3)...)
		for _, name := range names {
			h.submit(name)
			synctest.Wait()
		}
		h.store.Discard(h.t.Context(), names, halfmsg.Pending)
		paused := func() bool { return h.paused }
		h.run(4 * time.Minute)
		if !look(h, paused) {
			t.Error("its pause was forgotten")
		}
		h.run(2 * time.Minute)
		if look(h, paused) {
			t.Error("after six minutes without a message it is still said to be away")
		}
	})
}

func TestAFullHouseStillHasABatchForEach(t *testing.T) {
	inHouse(t, confirmloop.Config{Queue: 50, Batch: 10}, func(h *house) {
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

func TestAHangingProducerDelaysNobodyElse(t *testing.T) {
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

func TestCallsUnderWayAreFew(t *testing.T) {
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

func TestABacklogIsWorkedOffByWakingUp(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.have("orders", numbered(20_000)...)
		h.run(time.Second)
		if got := h.store.Count(halfmsg.Sendable); got != 20_000 {
			t.Errorf("%d of 20,000 were confirmed within a second", got)
		}
	})
}

func TestWhatDoesNotFitIsHandedBack(t *testing.T) {
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
	inHouse(t, confirmloop.Config{BytesPerProducer: 10 << 20, CallsPerProducer: 1}, func(h *house) {
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

func TestTrustTakesTheSubmitForTheVerdict(t *testing.T) {
	trust := func(producer string) bool { return producer == "orders" }
	inHouse(t, confirmloop.Config{Trusted: trust}, func(h *house) {
		h.answers(hanging("other", func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) {
			t.Error("asked a producer whose Submit is trusted")
			return nil, errAway
		}))
		h.submit(h.have("orders", "1")...)
		h.submit(h.have("other", "2")...)
		synctest.Wait()
		h.wantNotes("1 sendable", "delete 1", "send 1")
	})
}

func TestTrustIsForSubmitsOnly(t *testing.T) {
	inHouse(t, confirmloop.Config{Trusted: func(string) bool { return true }}, func(h *house) {
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			return all(ids, halfmsg.VerdictRolledBack), nil
		})
		names := h.have("orders", "silent")
		h.pass()
		h.wantState(names[0], halfmsg.RolledBack)
	})
}

func TestATrustedSubmitThatDoesNotFitIsStillAVerdict(t *testing.T) {
	config := confirmloop.Config{QueuePerProducer: 1, CallsPerProducer: 1, Batch: 1}
	config.Trusted = func(string) bool { return true }
	inHouse(t, config, func(h *house) {
		gate := make(chan struct{})
		h.drops(func(context.Context, halfmsg.Target, []string) error { <-gate; return nil })
		h.submit(h.have("orders", numbered(5)...)...)
		close(gate)
		synctest.Wait()
		if got := h.store.Count(halfmsg.Sendable); got != 5 || h.asks() != 0 {
			t.Errorf("%d are sendable, %d were asked about", got, h.asks())
		}
		if len(h.deleted) != 5 {
			t.Errorf("markers of %v were deleted", h.deleted)
		}
	})
}

func TestALeaseThatMayBeOverBeginsNothing(t *testing.T) {
	inHouse(t, confirmloop.Config{CallsPerProducer: 1, Batch: 1}, func(h *house) {
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			time.Sleep(25 * time.Second)
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		names := h.have("orders", "1", "2")
		h.pass()
		time.Sleep(26 * time.Second)
		synctest.Wait()
		if h.asks() != 1 {
			t.Errorf("%d calls: one was begun with 5 s of its lease left", h.asks())
		}
		h.wantState(names[0], halfmsg.Sendable)
		if got := h.wantState(names[1], halfmsg.Pending); got.LeaseOwner != "" {
			t.Errorf("%+v was not handed back", got)
		}
	})
}

func TestAVerdictAfterTheLeaseIsDropped(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			time.Sleep(31 * time.Second)
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		names := h.have("orders", "1")
		h.pass()
		time.Sleep(32 * time.Second)
		synctest.Wait()
		h.wantState(names[0], halfmsg.Pending)
		h.wantNotes()
		if h.fate("committed lease_lost") != 1 {
			t.Errorf("%v", h.fates)
		}
	})
}

func TestAContradictingVerdictIsCountedAndNotSent(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		names := h.have("orders", "1")
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			h.store.Rollback(context.Background(), names)
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		h.pass()
		h.wantState(names[0], halfmsg.RolledBack)
		h.wantNotes()
		if h.fate("committed contradiction") != 1 {
			t.Errorf("%v", h.fates)
		}
	})
}

func TestTheStoreIsAskedAgainWhileTheLeaseLasts(t *testing.T) {
	for _, failure := range []error{halfmsg.ErrUnavailable, halfmsg.ErrUncertain} {
		inHouse(t, confirmloop.Config{}, func(h *house) {
			h.have("orders", "1")
			h.store.Break(func(call string) error {
				if call == "Settle" {
					return failure
				}
				return nil
			})
			h.pass()
			h.wantNotes()
			time.Sleep(10 * time.Second)
			h.store.Break(nil)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			h.wantNotes("1 sendable", "delete 1", "send 1")
			if h.asks() != 1 {
				t.Errorf("the producer was asked %d times", h.asks())
			}
		})
	}
}

func TestAStoreThatIsAwayIsThePassesError(t *testing.T) {
	for _, broken := range []string{"PendingProducers", "ClaimPending"} {
		inHouse(t, confirmloop.Config{}, func(h *house) {
			h.have("orders", "1")
			h.store.Break(func(call string) error {
				if call == broken {
					return halfmsg.ErrUnavailable
				}
				return nil
			})
			if more, err := h.Pass(h.t.Context()); more || !errors.Is(err, halfmsg.ErrUnavailable) {
				t.Errorf("%s: got %v, %v", broken, more, err)
			}
		})
	}
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

func TestCloseEndsWhatIsUnderWayAndHandsBackTheRest(t *testing.T) {
	inHouse(t, confirmloop.Config{Batch: 10, CallsPerProducer: 1}, func(h *house) {
		gate := make(chan struct{})
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			<-gate
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		names := h.have("orders", numbered(35)...)
		h.pass()
		closed := make(chan error, 1)
		go func() { closed <- h.Close(context.Background()) }()
		synctest.Wait()
		close(gate)
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		if got := len(h.sentIDs()); got != 10 {
			t.Errorf("%d were sent, want the 10 under way", got)
		}
		for _, name := range names[10:] {
			if got := h.wantState(name, halfmsg.Pending); got.LeaseOwner != "" || got.DueAt.After(time.Now()) {
				t.Fatalf("%+v was not handed back", got)
			}
		}
		h.submit(names[20])
		if more, err := h.Pass(h.t.Context()); more || err != nil || h.asks() != 1 {
			t.Errorf("a pass after Close: %v, %v, %d calls", more, err, h.asks())
		}
		if got := h.store.Peek(names[20]); got.LeaseOwner != "" {
			t.Errorf("an offer after Close was kept: %+v", got)
		}
	})
}

func TestCloseBreaksCallsOffWhenItsContextEnds(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(ctx context.Context, _ halfmsg.Target, _ []string, _ bool) (verdicts, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		names := h.have("orders", "1")
		h.pass()
		ctx, cancel := context.WithTimeout(h.t.Context(), time.Second)
		defer cancel()
		if err := h.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close returned %v", err)
		}
		synctest.Wait()
		if got := h.wantState(names[0], halfmsg.Pending); got.LeaseOwner != "" || got.LastError != "" {
			t.Errorf("%+v was not handed back", got)
		}
	})
}

func TestAPassTakesOneBatchOfEachProducer(t *testing.T) {
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

// On a busy machine Submits are ready to run that bring messages for the same question.
func TestWhatIsReadyToRunSharesAQuestion(t *testing.T) {
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
