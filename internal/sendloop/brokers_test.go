package sendloop_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/sendloop"
	memstore "github.com/msghandler/msghandler/internal/store/memory"
)

// someBroker keeps the messages of a broker, and answers with outcome when the gate is open.
type someBroker struct {
	gate    chan struct{}
	outcome halfmsg.Outcome

	mu   sync.Mutex
	away error
	got  []halfmsg.Publishing
}

func (b *someBroker) Publish(
	_ context.Context, batch []halfmsg.Publishing, answered func([]int, []halfmsg.PublishResult),
) {
	b.mu.Lock()
	b.got = append(b.got, batch...)
	b.mu.Unlock()
	<-b.gate
	outcome := b.outcome
	if batch[0].Exchange == "dead-events" {
		outcome = halfmsg.Acked
	}
	hand(batch, "", outcome, answered)
}

func (b *someBroker) Ready() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.away
}

func (b *someBroker) setAway(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = err
}

func (b *someBroker) published() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

// manyBrokers makes a house whose sender has the default broker and the broker events.
func manyBrokers(t *testing.T, config sendloop.Config, events *someBroker, deadLetters string) (*house, *someBroker) {
	h := &house{t: t, store: memstore.New(), fates: map[string]int{}}
	gate := make(chan struct{})
	close(gate)
	standard := &someBroker{gate: gate, outcome: halfmsg.Acked}
	config.Store, config.Metrics, config.Logger = h.store, h, slog.New(slog.DiscardHandler)
	config.Pipeline = &delivery.Pipeline{
		Confirm: confirmStage{h}, SendLoop: wakeFunc(func() { h.mu.Lock(); h.wakes++; h.mu.Unlock() }),
	}
	config.Brokers = map[string]sendloop.Broker{
		"": {Publisher: standard}, "events": {Publisher: events, DeadLetterExchange: deadLetters},
	}
	h.Sender = sendloop.New(testConfig(config))
	t.Cleanup(func() { _ = h.Close(context.Background()) })
	return h, standard
}

// committedFor makes messages for a broker that are SENDABLE and held for lease.
func (h *house) committedFor(broker string, ids ...string) (claims []halfmsg.Claim) {
	h.t.Helper()
	for _, id := range ids {
		name := halfmsg.Name{Producer: "orders", ID: id}
		m := halfmsg.Message{Name: name, Broker: broker, Exchange: "x", RoutingKey: "key", Body: []byte(id)}
		h.store.Create(h.t.Context(), []halfmsg.Message{m})
		claim := *h.store.Submit(h.t.Context(), []halfmsg.Name{name}, lease)[0].Claim
		h.store.Settle(h.t.Context(), []halfmsg.Settlement{
			{Name: name, Token: claim.Token, Event: halfmsg.EventCommitted, Hold: lease},
		})
		claim.State, claim.SendableAt = halfmsg.Sendable, time.Now()
		claims = append(claims, claim)
	}
	return claims
}

// waitingFor makes messages for a broker that are SENDABLE, due, and without an owner.
func (h *house) waitingFor(broker string, ids ...string) {
	h.t.Helper()
	for _, claim := range h.committedFor(broker, ids...) {
		h.store.Settle(h.t.Context(), []halfmsg.Settlement{
			{Name: claim.Name, Token: claim.Token, Event: halfmsg.EventReleased},
		})
	}
}

// A broker is away and has thousands of older messages. The messages of the other broker go at once, in full batches;
// the broker's own messages wait without an attempt until the broker is back.
func TestAbsentBrokerCostsOthersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		close(gate)
		events := &someBroker{gate: gate, outcome: halfmsg.Acked, away: errBroker}
		h, standard := manyBrokers(t, sendloop.Config{}, events, "")
		h.waitingFor("events", prefixed("events", 3000)...)
		time.Sleep(time.Second)
		h.waitingFor("", prefixed("standard", 600)...)
		begun := time.Now()
		h.pass()
		h.Offer(h.committedFor("events", "events-fresh"), time.Now().Add(lease))
		h.Offer(h.committedFor("", "fresh"), time.Now().Add(lease))
		synctest.Wait()
		if got := standard.published(); got != 601 || time.Since(begun) > 0 {
			t.Errorf("%d of 601 messages were published in %s", got, time.Since(begun))
		}
		h.run(time.Minute)
		if got := events.published(); got != 0 {
			t.Errorf("%d messages went to a broker without room", got)
		}
		for _, id := range []string{"events00000", "events-fresh"} {
			if got := h.want(id, halfmsg.Sendable); got.PublishAttempts != 0 || got.LeaseOwner != "" {
				t.Errorf("%s has used %d attempts, and is held by %q", id, got.PublishAttempts, got.LeaseOwner)
			}
		}
		events.setAway(nil)
		h.run(2 * time.Minute)
		if got := events.published(); got != 3001 {
			t.Errorf("%d of 3001 messages were published once the broker was back", got)
		}
	})
}

// A broker without answers holds all of its own places and room, and none of the other broker's.
func TestSlowBrokerHoldsOnlyItsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &someBroker{gate: make(chan struct{}), outcome: halfmsg.Acked}
		h, standard := manyBrokers(t, sendloop.Config{Parallel: 2, Batch: 10, Queue: 100}, events, "")
		h.waitingFor("events", prefixed("events", 500)...)
		h.pass()
		h.Offer(h.committedFor("events", prefixed("fresh", 200)...), time.Now().Add(lease))
		synctest.Wait()
		if inFlight, waiting := events.published(), h.Waiting("events"); inFlight != 20 || waiting > 100 {
			t.Errorf("%d messages are at the slow broker, and %d wait for this broker", inFlight, waiting)
		}
		h.waitingFor("", prefixed("standard", 300)...)
		h.Offer(h.committedFor("", prefixed("also", 50)...), time.Now().Add(lease))
		begun := time.Now()
		for range 40 {
			h.pass()
		}
		if got := standard.published(); got != 350 || time.Since(begun) > 0 {
			t.Errorf("%d of 350 messages for the other broker were published in %s", got, time.Since(begun))
		}
		close(events.gate)
		h.run(3 * time.Minute)
		if left, _ := h.store.ClaimSendable(t.Context(), 1000, lease); len(left) > 0 {
			t.Errorf("%d messages are left, such as %s", len(left), left[0].Name)
		}
	})
}

// A message for a broker that only other instances know goes back, without an attempt and with a cause that says what
// to do.
func TestUnknownBrokerIsLeftToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		close(gate)
		h, standard := manyBrokers(t, sendloop.Config{}, &someBroker{gate: gate, outcome: halfmsg.Acked}, "")
		h.Offer(append(h.committedFor("elsewhere", "1"), h.committedFor("", "2")...), time.Now().Add(lease))
		synctest.Wait()
		if got := standard.published(); got != 1 {
			t.Errorf("%d messages were published, want the message without a broker", got)
		}
		got := h.want("1", halfmsg.Sendable)
		if got.PublishAttempts != 0 || got.LeaseOwner != "" || !strings.Contains(got.LastError, "brokers.NAME.url") {
			t.Errorf("the message is %+v", got)
		}
		if wait := time.Until(got.DueAt); wait < time.Second {
			t.Errorf("the message is due again in %v: the message comes back without end", wait)
		}
		time.Sleep(time.Minute)
		h.pass()
		if got := h.want("1", halfmsg.Sendable); got.LeaseOwner != "" {
			t.Errorf("a pass has claimed the message: %+v", got)
		}
	})
}

// The copy of a DEAD message goes to the dead-letter exchange of its own broker.
func TestDeadLettersStayAtTheirBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		close(gate)
		events := &someBroker{gate: gate, outcome: halfmsg.Refused}
		h, standard := manyBrokers(t, sendloop.Config{Backoff: backoff.Steps{time.Second}}, events, "dead-events")
		h.Offer(h.committedFor("events", "1"), time.Now().Add(lease))
		h.run(10 * time.Second)
		h.want("1", halfmsg.Dead)
		last := events.got[len(events.got)-1]
		if standard.published() != 0 || last.Exchange != "dead-events" || last.Headers[sendloop.HeaderExchange] != "x" {
			t.Errorf("the last publishing is %+v, and %d went to the default broker", last, standard.published())
		}
	})
}
