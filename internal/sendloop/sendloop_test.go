package sendloop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/logtext"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/sendloop"
	"github.com/msghandler/msghandler/test/must"
)

func TestPublishedThenDoneThenMarkerDeleted(t *testing.T) {
	for name, start := range map[string]func(h *house){
		"pass":  func(h *house) { h.waiting("1"); h.pass() },
		"offer": func(h *house) { h.offer("1") },
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, sendloop.Config{}, func(h *house) {
				start(h)
				synctest.Wait()
				h.wantNotes("publish 1 to x: acked", "1 done", "after ack 1")
				p := h.published()[0]
				if p.Attempt != 1 || p.DueAt.IsZero() || string(p.Body) != "1" || p.RoutingKey != "key" ||
					p.Headers["own"] != "1" {
					t.Errorf("published %+v", p)
				}
			})
		})
	}
}

func TestLastRefusalMakesTheMessageDead(t *testing.T) {
	inHouse(t, sendloop.Config{}, func(h *house) {
		h.answers(always(halfmsg.Refused), nil)
		begun := time.Now()
		h.waiting("1")
		h.pass()
		got := h.want("1", halfmsg.Sendable)
		wait := time.Until(got.DueAt)
		if got.PublishAttempts != 1 || wait < 2500*time.Millisecond || wait > 5*time.Second ||
			got.LastError != errBroker.Error() {
			t.Errorf("%+v, due in %v", got, wait)
		}
		h.run(5 * time.Minute)
		if got := h.want("1", halfmsg.Dead); got.PublishAttempts != 4 {
			t.Errorf("dead after %d refusals", got.PublishAttempts)
		}
		for i, p := range h.published() {
			if p.Attempt != i+1 {
				t.Errorf("copy %d has the number %d", i+1, p.Attempt)
			}
		}
		if n := len(h.published()); n != 4 {
			t.Errorf("%d copies in %v", n, time.Since(begun))
		}
	})
}

func TestOnlyAnswersAreAttempts(t *testing.T) {
	for outcome, copies := range map[halfmsg.Outcome]bool{halfmsg.Unsure: true, halfmsg.Unsent: false, 0: true} {
		inHouse(t, sendloop.Config{}, func(h *house) {
			h.answers(always(outcome), nil)
			h.waiting("1")
			h.run(30 * time.Minute)
			if got := h.want("1", halfmsg.Sendable); got.PublishAttempts != 0 || got.LastError != errBroker.Error() {
				t.Errorf("%s: %+v", outcome, got)
			}
			n := len(h.published())
			h.answers(nil, nil)
			h.run(time.Minute)
			h.want("1", halfmsg.Done)
			last := h.published()[n]
			if flagged := last.Attempt > 1; flagged != copies {
				t.Errorf("%s: the next copy is number %d", outcome, last.Attempt)
			}
			if copies && n > 60 {
				t.Errorf("%s: %d copies in half an hour, want a growing delay", outcome, n)
			}
		})
	}
}

func TestAwayBrokerStopsClaims(t *testing.T) {
	inHouse(t, sendloop.Config{}, func(h *house) {
		h.answers(nil, errors.New("blocked"))
		h.waiting("1")
		h.pass()
		if got := h.want("1", halfmsg.Sendable); got.LeaseOwner != "" || got.DueAt.After(time.Now()) {
			t.Errorf("claimed: %+v", got)
		}
		h.offer("2")
		got := h.want("2", halfmsg.Sendable)
		wait := time.Until(got.DueAt)
		if got.LeaseOwner != "" || got.LastError != "blocked" || wait < time.Second || wait > 5*time.Second {
			t.Errorf("%+v, due in %v", got, wait)
		}
		h.answers(nil, nil)
		h.run(6 * time.Second)
		h.want("1", halfmsg.Done)
		h.want("2", halfmsg.Done)
		for _, p := range h.published() {
			if p.Attempt != 1 {
				t.Errorf("%s is flagged as copy %d though none was out", p.Name, p.Attempt)
			}
		}
	})
}

// The first refusal has a line: a missing queue is found before its messages are DEAD.
func TestSendingFailedIsInConfiguredLanguage(t *testing.T) {
	for language, want := range map[logtext.Language][]string{
		logtext.English: {
			`msg="messages refused by the broker; they are published again after a pause;`,
			`cause="312 NO_ROUTE" attempts=1 retry_in_ms=`,
			`msg="sending failed; messages are DEAD: the broker refused every attempt`,
		},
		logtext.Chinese: {
			`msg="messages refused by the broker;`, "msg=消息发送失败 ", // of DEAD messages alone
		},
	} {
		var log bytes.Buffer
		config := sendloop.Config{Language: language, Backoff: backoff.Steps{time.Second}}
		config.Logger = slog.New(slog.NewTextHandler(&log, nil))
		inHouse(t, config, func(h *house) {
			h.answers(always(halfmsg.Refused), nil)
			h.waiting("1")
			h.run(time.Minute)
			h.want("1", halfmsg.Dead)
		})
		for _, line := range want {
			if said := log.String(); !strings.Contains(said, line) {
				t.Errorf("in %q: %q is not in %s", language, line, said)
			}
		}
	}
}

func TestDeadLettersKeepTheirStory(t *testing.T) {
	inHouse(t, sendloop.Config{Brokers: deadTo("dlx"), Backoff: backoff.Steps{time.Second}}, func(h *house) {
		h.answers(func(_ context.Context, p halfmsg.Publishing) halfmsg.PublishResult {
			if p.Exchange == "dlx" {
				return halfmsg.PublishResult{Outcome: halfmsg.Acked}
			}
			return halfmsg.PublishResult{Outcome: halfmsg.Refused, Cause: errBroker}
		}, nil)
		h.waiting("1")
		h.run(10 * time.Second)
		h.wantNotes("publish 1 to x: refused", "publish 1 to x: refused", "publish 1 to dlx: acked", "1 dead")
		p := h.published()[2]
		want := map[string]string{
			"own": "1", sendloop.HeaderReason: errBroker.Error(), sendloop.HeaderAttempts: "2",
			sendloop.HeaderExchange: "x", sendloop.HeaderKey: "key",
		}
		if len(p.Headers) != len(want) || p.RoutingKey != "key" || string(p.Body) != "1" || p.Attempt < 2 {
			t.Errorf("copied %+v", p)
		}
		for key, value := range want {
			if p.Headers[key] != value {
				t.Errorf("%s is %q, want %q", key, p.Headers[key], value)
			}
		}
		if got := h.want("1", halfmsg.Dead); len(got.Headers) != 1 {
			t.Errorf("the message itself has %v now", got.Headers)
		}

		h.waiting("bare") // it has no headers
		h.run(10 * time.Second)
		h.want("bare", halfmsg.Dead)
		if p := h.published()[5]; p.Exchange != "dlx" || len(p.Headers) != 4 {
			t.Errorf("copied %+v", p)
		}
	})
}

// The queue of the dead-letter exchange never confirms. The copy alone is repeated, a few times, and keeps no message
// from DEAD.
func TestUnansweredCopyKeepsNoMessageAlive(t *testing.T) {
	for _, outcome := range []halfmsg.Outcome{halfmsg.Unsure, halfmsg.Unsent, halfmsg.Refused, 0} {
		var log bytes.Buffer
		config := sendloop.Config{Brokers: deadTo("dlx"), Backoff: backoff.Steps{time.Second}}
		config.Logger = slog.New(slog.NewTextHandler(&log, nil))
		inHouse(t, config, func(h *house) {
			h.answers(refusing(outcome), nil)
			h.waiting("1")
			h.run(24 * time.Hour)
			h.want("1", halfmsg.Dead)
			publishings := map[string]int{}
			for _, p := range h.published() {
				publishings[p.Exchange]++
			}
			if publishings["x"] != 2 || publishings["dlx"] > 3 {
				t.Errorf("%s: published %v times", outcome, publishings)
			}
		})
		if said := log.String(); !strings.Contains(said, "level=ERROR") || !strings.Contains(said, "a copy") {
			t.Errorf("%s: no line names the missing copy: %s", outcome, said)
		}
	}
}

// refusing refuses every message, and gives copies for the dead-letter exchange this outcome.
func refusing(copies halfmsg.Outcome) answer {
	return func(_ context.Context, p halfmsg.Publishing) halfmsg.PublishResult {
		if p.Exchange == "dlx" {
			return halfmsg.PublishResult{Outcome: copies, Cause: errBroker}
		}
		return halfmsg.PublishResult{Outcome: halfmsg.Refused, Cause: errBroker}
	}
}

// The broker is lost while a message dies: an outage, in which the message waits and uses no attempt.
func TestOutageDuringCopyIsNoDeath(t *testing.T) {
	inHouse(t, sendloop.Config{Brokers: deadTo("dlx"), Backoff: backoff.Steps{time.Second}}, func(h *house) {
		lost := func(ctx context.Context, p halfmsg.Publishing) halfmsg.PublishResult {
			if p.Exchange == "dlx" {
				h.answers(nil, errors.New("connection lost"))
			}
			return refusing(halfmsg.Unsure)(ctx, p)
		}
		h.answers(lost, nil)
		h.waiting("1")
		h.run(time.Minute)
		h.want("1", halfmsg.Sendable)
		h.answers(nil, nil)
		h.run(2 * time.Minute)
		h.want("1", halfmsg.Done)
	})
}

// A broker that drops repeats must not take a copy on purpose for one.
func TestCopiesOnPurposeAreNumbered(t *testing.T) {
	inHouse(t, sendloop.Config{Brokers: deadTo("dlx"), Backoff: backoff.Steps{time.Second}}, func(h *house) {
		h.answers(always(halfmsg.Refused), nil)
		h.waiting("1")
		h.run(10 * time.Second)
		h.want("1", halfmsg.Dead)
		name := halfmsg.Name{Producer: "orders", ID: "1"}
		if r := h.store.Retry(t.Context(), []halfmsg.Name{name}, "", "")[0]; r.Err != nil {
			t.Fatal(r)
		}
		h.run(10 * time.Second)
		seen := map[string]int{}
		for _, p := range h.published() {
			dead := p.Exchange == "dlx"
			if numbered := p.Publication != ""; numbered != dead || p.Dead != dead {
				t.Errorf("published to %s as %q", p.Exchange, p.Publication)
			}
			seen[p.Publication]++
		}
		if len(seen) != 3 {
			t.Errorf("published %v, want a copy for each of two deaths", seen)
		}
		claims := h.committed("2")
		claims[0].Replayed = true
		h.Offer(claims, time.Now().Add(lease))
		synctest.Wait()
		if p := h.published(); p[len(p)-1].Publication == "" {
			t.Error("a replay has no number")
		}
	})
}

func TestEndingLeaseIsNotPublished(t *testing.T) {
	inHouse(t, sendloop.Config{}, func(h *house) {
		claims, until := h.committed("1"), time.Now().Add(lease)
		time.Sleep(21 * time.Second) // less than the publisher may take is left
		h.Offer(claims, until)
		synctest.Wait()
		if n := len(h.published()); n != 0 {
			t.Errorf("%d published", n)
		}
		if got := h.want("1", halfmsg.Sendable); got.LeaseOwner != "" {
			t.Errorf("%+v was not handed back", got)
		}
		h.pass()
		if got := h.published(); len(got) != 1 || got[0].Attempt != 1 {
			t.Errorf("published %+v", got)
		}
	})
}

func TestAcknowledgementAfterLeaseIsDropped(t *testing.T) {
	inHouse(t, sendloop.Config{}, func(h *house) {
		h.answers(func(context.Context, halfmsg.Publishing) halfmsg.PublishResult {
			time.Sleep(lease + time.Second)
			return halfmsg.PublishResult{Outcome: halfmsg.Acked}
		}, nil)
		h.offer("1")
		time.Sleep(lease + 2*time.Second)
		synctest.Wait()
		h.want("1", halfmsg.Sendable)
		h.wantNotes("publish 1 to x: acked")
		if look(h, func() int { return h.fates["acked lease_lost"] }) != 1 {
			t.Errorf("%v", h.fates)
		}
		h.answers(nil, nil)
		h.pass()
		if got := h.published()[1]; got.Attempt != 2 {
			t.Errorf("the second copy has the number %d", got.Attempt)
		}
	})
}

func TestAcknowledgementSurvivesAStoreOutage(t *testing.T) {
	inHouse(t, sendloop.Config{}, func(h *house) {
		claims := h.committed("1")
		h.store.Break(func(string) error { return halfmsg.ErrUnavailable })
		h.Offer(claims, time.Now().Add(lease))
		time.Sleep(20 * time.Second)
		h.store.Break(nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		h.wantNotes("publish 1 to x: acked", "1 done", "after ack 1")
	})
}

func TestOnePoisonRecordStopsNothing(t *testing.T) {
	inHouse(t, sendloop.Config{}, func(h *house) {
		h.answers(func(_ context.Context, p halfmsg.Publishing) halfmsg.PublishResult {
			if p.Name.ID == "00042" {
				panic("poison")
			}
			return halfmsg.PublishResult{Outcome: halfmsg.Acked}
		}, nil)
		h.waiting(numbered(100)...)
		h.pass()
		if got := h.store.Count(halfmsg.Done); got != 99 {
			t.Errorf("%d of 99 are done", got)
		}
		got := h.want("00042", halfmsg.Sendable)
		if got.LastError != "panic: poison" || time.Until(got.DueAt) < 30*time.Second || got.PublishAttempts != 0 {
			t.Errorf("%+v", got)
		}
		// Every message that was published twice says so.
		seen := map[string]bool{}
		for _, p := range h.published() {
			if seen[p.Name.ID] && p.Attempt != 2 {
				t.Errorf("a second copy of %s has the number %d", p.Name, p.Attempt)
			}
			seen[p.Name.ID] = true
		}
		// A publisher may panic behind a copy.
		h.answers(nil, nil)
		h.run(5 * time.Minute)
		h.want("00042", halfmsg.Done)
		all := h.published()
		if last := all[len(all)-1]; last.Name.ID != "00042" || last.Attempt < 2 {
			t.Errorf("the last copy is number %d of %s", last.Attempt, last.Name)
		}
	})
}

func TestRunningAndWaitingBatchesAreBounded(t *testing.T) {
	inHouse(t, sendloop.Config{Parallel: 2, Batch: 10, Queue: 30}, func(h *house) {
		gate := make(chan struct{})
		h.answers(func(context.Context, halfmsg.Publishing) halfmsg.PublishResult {
			<-gate
			return halfmsg.PublishResult{Outcome: halfmsg.Acked}
		}, nil)
		h.waiting(numbered(100)...)
		h.pass()
		if h.Waiting("") != 15 {
			t.Errorf("%d of the backlog wait in memory, want half of 30", h.Waiting(""))
		}
		var offered []string
		for i := range 16 {
			offered = append(offered, "offered-"+strconv.Itoa(i))
		}
		h.offer(offered...)
		if h.Waiting("") != 30 {
			t.Errorf("%d wait in memory, want 30", h.Waiting(""))
		}
		if got := h.want("offered-15", halfmsg.Sendable); got.LeaseOwner != "" {
			t.Errorf("%+v was not handed back", got)
		}
		close(gate)
		synctest.Wait()
		if look(h, func() int { return h.wakes }) == 0 {
			t.Error("there is room again, and no wake-up was sent")
		}
		h.run(5 * time.Second)
		if got := h.store.Count(halfmsg.Done); got != 116 {
			t.Errorf("%d of 116 are done", got)
		}
		for _, p := range h.published() {
			if p.Attempt != 1 {
				t.Fatalf("%s is flagged as copy %d in a clean run", p.Name, p.Attempt)
			}
		}
	})
}

// A fresh message does not wait for a backlog before it.
func TestTheBacklogGivesWay(t *testing.T) {
	inHouse(t, sendloop.Config{Parallel: 4, Batch: 100}, func(h *house) {
		gate := make(chan struct{})
		h.answers(func(_ context.Context, p halfmsg.Publishing) halfmsg.PublishResult {
			h.note("at the broker: %s", p.Name.ID)
			<-gate
			return halfmsg.PublishResult{Outcome: halfmsg.Acked}
		}, nil)
		h.offer("first")
		h.waiting(numbered(1000)...)
		h.pass()
		h.offer("second")
		synctest.Wait()
		if got := look(h, func() []string { return slices.Clone(h.notes) }); !slices.Contains(got, "at the broker: second") {
			t.Errorf("the message waits for the backlog: %v", got)
		}
		close(gate)
		synctest.Wait()
		h.want("second", halfmsg.Done)
		h.run(2 * time.Second)
		if got := h.store.Count(halfmsg.Done); got != 1002 {
			t.Errorf("%d of 1002 are done", got)
		}
	})
}

// A backlog that is too large to give way takes turns with fresh messages: neither starves.
func TestBacklogAndFreshTrafficTakeTurns(t *testing.T) {
	inHouse(t, sendloop.Config{Parallel: 1, Batch: 100}, func(h *house) {
		h.answers(func(context.Context, halfmsg.Publishing) halfmsg.PublishResult {
			time.Sleep(time.Millisecond)
			return halfmsg.PublishResult{Outcome: halfmsg.Acked}
		}, nil)
		h.waiting(numbered(3000)...)
		h.offer("fresh-0")
		for n := 1; n <= 5; n++ {
			h.pass()
			time.Sleep(500 * time.Millisecond)
			h.offer("fresh-" + strconv.Itoa(n))
			time.Sleep(250 * time.Millisecond)
			h.want("fresh-"+strconv.Itoa(n), halfmsg.Done)
		}
		if got := h.store.Count(halfmsg.Done); got < 2000 {
			t.Errorf("%d of 3,000 were sent in 3.75 s: the backlog does not get along", got)
		}
		h.run(2 * time.Second)
	})
}

// One pass fills the room, and each further pass is asked for when there is room again.
func TestWakeUpsWorkOffABacklog(t *testing.T) {
	inHouse(t, sendloop.Config{Queue: 100, Batch: 10}, func(h *house) {
		h.answers(func(context.Context, halfmsg.Publishing) halfmsg.PublishResult {
			time.Sleep(time.Millisecond) // the pass ends before the first answer
			return halfmsg.PublishResult{Outcome: halfmsg.Acked}
		}, nil)
		h.waiting(numbered(1000)...)
		h.pass()
		if got := h.Waiting(""); got != 50 {
			t.Errorf("after a single pass %d messages wait, want half of 100", got)
		}
		h.passWhenWoken(time.Second)
		if got := h.store.Count(halfmsg.Done); got != 1000 {
			t.Errorf("%d of 1,000 were sent within a second", got)
		}
	})
}

// Where markers are deleted after the acknowledgement, what the broker has is held for that, and only then.
func TestAcknowledgedMessagesAreHeldForDeletion(t *testing.T) {
	inHouse(t, sendloop.Config{DeleteAfterAck: true, Lease: lease}, func(h *house) {
		h.offer("1")
		synctest.Wait()
		h.wantNotes("publish 1 to x: acked", "1 acknowledged", "acknowledged 1 acknowledged")
		until := look(h, func() time.Time { return h.heldUntil })
		got := h.want("1", halfmsg.Acknowledged)
		if got.LeaseOwner == "" || until.After(got.LeaseUntil) || time.Until(until) < lease-time.Second {
			t.Errorf("held until %v, told until %v", got.LeaseUntil, until)
		}
		h.answers(always(halfmsg.Refused), nil)
		h.offer("2")
		synctest.Wait()
		h.want("2", halfmsg.Sendable)
	})
}

func TestPassReturnsTheStoreError(t *testing.T) {
	inHouse(t, sendloop.Config{}, func(h *house) {
		h.store.Break(func(string) error { return halfmsg.ErrUnavailable })
		if more, err := h.Pass(h.t.Context()); more || !errors.Is(err, halfmsg.ErrUnavailable) {
			t.Errorf("got %v, %v", more, err)
		}
	})
}

func TestCloseFinishesCallsAndReturnsRest(t *testing.T) {
	inHouse(t, sendloop.Config{Parallel: 1, Batch: 10}, func(h *house) {
		gate := make(chan struct{})
		h.answers(func(context.Context, halfmsg.Publishing) halfmsg.PublishResult {
			<-gate
			return halfmsg.PublishResult{Outcome: halfmsg.Acked}
		}, nil)
		h.offer(numbered(35)...)
		synctest.Wait() // the first batch is under way
		closed := make(chan error, 1)
		go func() { closed <- h.Close(context.Background()) }()
		synctest.Wait()
		close(gate)
		must.Succeed(t, <-closed)
		if got := h.store.Count(halfmsg.Done); got != 10 {
			t.Errorf("%d are done, want the 10 under way", got)
		}
		h.offer("late")
		for _, id := range append(numbered(35)[10:], "late") {
			if got := h.want(id, halfmsg.Sendable); got.LeaseOwner != "" || got.DueAt.After(time.Now()) {
				t.Fatalf("%+v was not handed back", got)
			}
		}
		if more, err := h.Pass(h.t.Context()); more || err != nil || len(h.published()) != 10 {
			t.Errorf("a pass after Close: %v, %v", more, err)
		}
	})
}

func TestCloseEndsBatchesWithItsContext(t *testing.T) {
	inHouse(t, sendloop.Config{}, func(h *house) {
		h.answers(func(ctx context.Context, _ halfmsg.Publishing) halfmsg.PublishResult {
			<-ctx.Done()
			return halfmsg.PublishResult{Outcome: halfmsg.Unsent}
		}, nil)
		h.offer("1")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(h.t.Context(), time.Second)
		defer cancel()
		if err := h.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close returned %v", err)
		}
		synctest.Wait()
		if got := h.want("1", halfmsg.Sendable); got.LeaseOwner != "" || got.DueAt.After(time.Now()) {
			t.Errorf("%+v was not handed back", got)
		}
	})
}

// On a busy machine those are ready to run that bring messages for the same batch.
func TestReadyCallsShareBatch(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so busy that one has to wait for another
	inHouse(t, sendloop.Config{}, func(h *house) {
		const rounds, offers = 20, 10
		for round := range rounds {
			var wg sync.WaitGroup
			for i := range offers {
				claims := h.committed(fmt.Sprintf("%d-%d", round, i))
				wg.Go(func() { h.Offer(claims, time.Now().Add(lease)) })
			}
			wg.Wait()
			synctest.Wait()
		}
		// The scheduler takes things out of turn now and then.
		if n := look(h, func() int { return h.batches }); n > 2*rounds {
			t.Errorf("%d batches for %d rounds of %d offers", n, rounds, offers)
		}
	})
}
