package sendloop_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/sendloop"
	memstore "github.com/msghandler/msghandler/internal/store/memory"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

func stuck(p halfmsg.Publishing) bool { return strings.HasPrefix(p.Name.ID, "stuck") }

// A queue that does not confirm holds up neither the rest of a batch nor the batches behind it; and what waits for it
// stays bounded.
func TestUnconfirmedQueueDelaysNoOther(t *testing.T) {
	inHouse(t, sendloop.Config{Parallel: 1, Batch: 2}, func(h *house) {
		h.isLate(stuck)
		for round := range 2 { // as often as it happens
			id := func(kind string, n int) string { return fmt.Sprint(kind, " ", round, "-", n) }
			for n := range 4 {
				h.offer(id("stuck", n), id("good", n))
				synctest.Wait()
			}
			// Two messages straggle, as many as fill a batch, and the third batch keeps its place.
			for n := range 3 {
				h.want(id("good", n), halfmsg.Done)
			}
			h.want(id("good", 3), halfmsg.Sendable)
			h.want(id("stuck", 0), halfmsg.Sendable)
			if h.Waiting("") != 2 {
				t.Errorf("%d messages wait, want the fourth batch", h.Waiting(""))
			}
			time.Sleep(confirmTimeout)
			synctest.Wait()
			h.want(id("stuck", 0), halfmsg.Done)
			h.want(id("good", 3), halfmsg.Done)
			time.Sleep(confirmTimeout)
			synctest.Wait()
			if got := h.store.Count(halfmsg.Done); got != 8*(round+1) {
				t.Errorf("%d of %d are done", got, 8*(round+1))
			}
		}

		// Nothing of it is counted for ever: as much goes through as at first.
		for _, n := range []string{"5", "6"} {
			h.offer("stuck"+n, "good"+n)
		}
		time.Sleep(confirmTimeout)
		h.offer("stuck7", "stuck8") // a batch that has no answer at all
		h.offer("good7", "good8")
		synctest.Wait()
		h.want("good8", halfmsg.Done)
		time.Sleep(confirmTimeout)
	})
}

// The backlog that gives way is at the broker one batch at a time: a message that gets no answer does not count as
// being there.
func TestUnansweredMessageDoesNotStopBacklog(t *testing.T) {
	inHouse(t, sendloop.Config{Batch: 10}, func(h *house) {
		h.isLate(stuck)
		h.offer("fresh")
		h.waiting("stuck")
		h.waiting(numbered(20)...)
		h.pass()
		if got := h.store.Count(halfmsg.Done); got != 21 {
			t.Errorf("%d are done, want all but the message without an answer", got)
		}
		time.Sleep(confirmTimeout)
	})
}

// A dead-letter exchange that does not answer holds up neither the rest of the batch nor the next one, and a message
// whose lease would end meanwhile is not copied.
func TestDeadLettersDelayNoOther(t *testing.T) {
	inHouse(t, sendloop.Config{
		Parallel: 1, Brokers: deadTo("dlx"), Backoff: backoff.Steps{time.Second},
	}, func(h *house) {
		refuse := func(_ context.Context, p halfmsg.Publishing) halfmsg.PublishResult {
			if stuck(p) && p.Exchange != "dlx" {
				return halfmsg.PublishResult{Outcome: halfmsg.Refused, Cause: errBroker}
			}
			return halfmsg.PublishResult{Outcome: halfmsg.Acked}
		}
		h.answers(refuse, nil)
		h.isLate(func(p halfmsg.Publishing) bool { return p.Exchange == "dlx" })
		h.waiting("stuck1")
		h.pass()
		time.Sleep(time.Second) // its last attempt is due
		h.waiting("good1")
		h.pass()
		h.offer("good2")
		synctest.Wait()
		h.want("good1", halfmsg.Done)
		h.want("good2", halfmsg.Done)
		h.want("stuck1", halfmsg.Sendable)
		time.Sleep(confirmTimeout)
		synctest.Wait()
		h.want("stuck1", halfmsg.Dead)

		// With an answer that comes late, the lease is too short for another one.
		h.waiting("stuck2")
		h.pass()
		time.Sleep(time.Second)
		h.isLate(func(p halfmsg.Publishing) bool { return p.Exchange == "x" })
		h.answers(func(ctx context.Context, p halfmsg.Publishing) halfmsg.PublishResult {
			time.Sleep(confirmTimeout + 5*time.Second)
			return refuse(ctx, p)
		}, nil)
		h.pass()
		time.Sleep(lease)
		synctest.Wait()
		if got := h.want("stuck2", halfmsg.Sendable); got.LeaseOwner != "" {
			t.Errorf("%+v was not put off", got)
		}
		for _, p := range h.published() {
			if p.Exchange == "dlx" && p.Name.ID == "stuck2" {
				t.Error("the message was copied, though its lease might end before the answer")
			}
		}
	})
}

// What cannot be sent although the broker takes other messages is tried less and less.
func TestUnsentMessageIsTriedEverLess(t *testing.T) {
	inHouse(t, sendloop.Config{}, func(h *house) {
		h.answers(always(halfmsg.Unsent), nil)
		h.waiting("1")
		h.run(5 * time.Minute)
		if n := len(h.published()); n < 5 || n > 14 {
			t.Errorf("tried %d times in five minutes, want each minute in the end", n)
		}
		h.answers(nil, nil)
		h.run(time.Minute)
		h.want("1", halfmsg.Done)
	})
}

// groups is a publisher that hands outcomes over as the test says.
type groups func(batch []halfmsg.Publishing, answered func([]int, []halfmsg.PublishResult))

func (g groups) Publish(_ context.Context, b []halfmsg.Publishing, answered func([]int, []halfmsg.PublishResult)) {
	g(b, answered)
}

func (groups) Ready() error { return nil }

// hand hands the outcome over for the messages whose ids begin with prefix.
func hand(
	batch []halfmsg.Publishing, prefix string, outcome halfmsg.Outcome, answered func([]int, []halfmsg.PublishResult),
) {
	var places []int
	var results []halfmsg.PublishResult
	for i := range batch {
		if strings.HasPrefix(batch[i].Name.ID, prefix) {
			places = append(places, i)
			results = append(results, halfmsg.PublishResult{Outcome: outcome, Cause: errBroker})
		}
	}
	answered(places, results)
}

// partly is a store of which the messages whose ids begin with away cannot be reached.
type partly struct{ *memstore.Store }

func (s partly) Settle(ctx context.Context, all []halfmsg.Settlement) []halfmsg.Result {
	results := make([]halfmsg.Result, len(all))
	for i, w := range all {
		if strings.HasPrefix(w.Name.ID, "away") {
			results[i].Err = fmt.Errorf("dial: %w", halfmsg.ErrUnavailable)
		} else {
			results[i] = s.Store.Settle(ctx, all[i:i+1])[0]
		}
	}
	return results
}

// with makes a house whose sender has another publisher and store.
func with(
	t *testing.T, config sendloop.Config, publisher groups, store func(*memstore.Store) halfmsg.SendStore,
) *house {
	h := &house{t: t, store: memstore.New(), fates: map[string]int{}}
	config.Store, config.Metrics, config.Pipeline = store(h.store), h, h.pipeline()
	config.Brokers = map[string]sendloop.Broker{
		"": {Publisher: publisher, DeadLetterExchange: config.Brokers[""].DeadLetterExchange},
	}
	config.Logger = slog.New(slog.DiscardHandler)
	h.Sender = sendloop.New(testConfig(config))
	t.Cleanup(func() { _ = h.Close(context.Background()) })
	return h
}

// What cannot be stored, or waits for its copy, holds up nothing that the broker answers later.
func TestSlowGroupDelaysNoOther(t *testing.T) {
	inOrder := func(batch []halfmsg.Publishing, answered func([]int, []halfmsg.PublishResult)) {
		if batch[0].Exchange == "dlx" {
			time.Sleep(confirmTimeout)
			hand(batch, "", halfmsg.Acked, answered)
			return
		}
		hand(batch, "away", halfmsg.Acked, answered)
		hand(batch, "dying", halfmsg.Refused, answered)
		time.Sleep(50 * time.Millisecond)
		hand(batch, "good", halfmsg.Acked, answered)
	}
	synctest.Test(t, func(t *testing.T) {
		h := with(t, sendloop.Config{Brokers: deadTo("dlx"), Backoff: backoff.Steps{time.Second}}, inOrder,
			func(s *memstore.Store) halfmsg.SendStore { return partly{s} })
		h.waiting("dying")
		h.pass()
		time.Sleep(2 * time.Second) // its last attempt is due
		dying, err := h.store.ClaimSendable(t.Context(), 10, lease)
		must.Succeed(t, err)
		h.Offer(append(dying, h.committed("away", "good")...), time.Now().Add(lease))
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		h.want("good", halfmsg.Done)
		time.Sleep(lease)
		h.want("dying", halfmsg.Dead)
	})
}

// A message whose shard is away does not hold the place of its batch for its lease.
func TestAwayShardHoldsNoPlace(t *testing.T) {
	acks := func(batch []halfmsg.Publishing, answered func([]int, []halfmsg.PublishResult)) {
		hand(batch, "", halfmsg.Acked, answered)
	}
	synctest.Test(t, func(t *testing.T) {
		h := with(t, sendloop.Config{Parallel: 1}, acks,
			func(s *memstore.Store) halfmsg.SendStore { return partly{s} })
		h.offer("away", "good1")
		synctest.Wait()
		h.offer("good2")
		synctest.Wait()
		h.want("good1", halfmsg.Done)
		h.want("good2", halfmsg.Done)
		time.Sleep(lease)
	})
}

// restarting is a store whose messages that begin with away cannot be reached until a time.
type restarting struct {
	partly
	until time.Time
}

func (s restarting) Settle(ctx context.Context, all []halfmsg.Settlement) []halfmsg.Result {
	if time.Now().Before(s.until) {
		return s.partly.Settle(ctx, all)
	}
	return s.Store.Settle(ctx, all)
}

// A shard is away for a second. What was handed back meanwhile does not wait for the end of its lease.
func TestHandBackOutlastsRestartOfShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := with(t, sendloop.Config{}, nil, func(s *memstore.Store) halfmsg.SendStore {
			return restarting{partly{s}, time.Now().Add(time.Second)}
		})
		h.Offer(h.committedFor("unknown", "away", "good"), time.Now().Add(lease))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if stored := look(h, func() int { return h.fates["released stored"] }); stored != 2 {
			t.Errorf("%d of 2 messages are handed back: %v", stored, h.fates)
		}
	})
}

// A message without an answer keeps no others in memory.
func TestAnsweredBodiesAreReleased(t *testing.T) {
	hold := make(chan struct{})
	var kept []halfmsg.Publishing
	handed := make(chan struct{})
	h := with(t, sendloop.Config{}, func(batch []halfmsg.Publishing, answered func([]int, []halfmsg.PublishResult)) {
		hand(batch, "good", halfmsg.Acked, answered)
		kept = batch
		close(handed)
		<-hold
		hand(batch, "stuck", halfmsg.Acked, answered)
	}, func(s *memstore.Store) halfmsg.SendStore { return nowhere{s} })
	body := weak.Pointer[byte]{}
	func() {
		var claims []halfmsg.Claim
		for _, id := range []string{"good", "stuck"} {
			c := halfmsg.Claim{State: halfmsg.Sendable}
			c.Name, c.Body = halfmsg.Name{Producer: "orders", ID: id}, make([]byte, 1<<20)
			claims = append(claims, c)
		}
		body = weak.Make(&claims[0].Body[0])
		h.Offer(claims, time.Now().Add(time.Hour))
	}()
	<-handed
	servers.Eventually(t, 10*time.Second, "the body is let go", func() bool {
		runtime.GC()
		return body.Value() == nil
	})
	if len(kept[0].Body) != 0 || len(kept[1].Body) == 0 {
		t.Errorf("bodies of %d and %d bytes are left, want the body of the message without an answer",
			len(kept[0].Body), len(kept[1].Body))
	}
	close(hold)
}

// nowhere is a store that takes everything and keeps nothing.
type nowhere struct{ *memstore.Store }

func (nowhere) Settle(_ context.Context, all []halfmsg.Settlement) []halfmsg.Result {
	results := make([]halfmsg.Result, len(all))
	for i := range results {
		results[i].State = halfmsg.Done
	}
	return results
}

// When stragglers are settled the next batch goes, whichever batch they were of.
func TestSettledStragglersFreeTheirRoom(t *testing.T) {
	inHouse(t, sendloop.Config{Parallel: 1, Batch: 2}, func(h *house) {
		h.isLate(stuck)
		h.offer("stuck1", "stuck2")
		time.Sleep(confirmTimeout - time.Second)
		h.offer("stuck3", "good1")
		synctest.Wait()
		h.offer("good2")
		synctest.Wait()
		h.want("good2", halfmsg.Sendable)
		time.Sleep(time.Second)
		synctest.Wait()
		h.want("good2", halfmsg.Done)
		time.Sleep(confirmTimeout)
	})
}

// A publisher that breaks down when the broker has answered for some has those not published again.
func TestPanicAfterAnswersRepublishesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		published := 0
		h := with(t, sendloop.Config{}, func(batch []halfmsg.Publishing, answered func([]int, []halfmsg.PublishResult)) {
			published += len(batch)
			hand(batch, "good", halfmsg.Acked, answered)
			panic("poison")
		}, func(s *memstore.Store) halfmsg.SendStore { return s })
		h.offer("good", "another", "other")
		synctest.Wait()
		h.want("good", halfmsg.Done)
		h.want("other", halfmsg.Sendable)
		if published != 3 {
			t.Errorf("%d copies were published, want 3", published)
		}
	})
}
