package sendloop_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/sendloop"
	memstore "github.com/msghandler/msghandler/internal/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroker = errors.New("312 NO_ROUTE")

// house is a sender between a store in memory and a broker that only takes notes. It runs in a bubble of fake time.
type house struct {
	*sendloop.Sender
	t     *testing.T
	store *memstore.Store

	mu     sync.Mutex
	answer answer
	// late says which messages the broker answers only after confirmTimeout.
	late  func(p halfmsg.Publishing) bool
	away  error
	notes []string
	out   []halfmsg.Publishing
	fates map[string]int
	wakes int
	// heldUntil is the end of the leases of the latest ACKNOWLEDGED messages.
	heldUntil time.Time
	// batches is how many went to the broker.
	batches int
}

// answer is what the broker says of one publishing; nil is Acked.
type answer = func(ctx context.Context, p halfmsg.Publishing) halfmsg.PublishResult

func always(outcome halfmsg.Outcome) answer {
	return func(context.Context, halfmsg.Publishing) halfmsg.PublishResult {
		return halfmsg.PublishResult{Outcome: outcome, Cause: errBroker}
	}
}

// testConfig completes what a test does not choose.
func testConfig(c sendloop.Config) sendloop.Config {
	if len(c.Backoff) == 0 {
		c.Backoff = backoff.Steps{5 * time.Second, 30 * time.Second, 2 * time.Minute}
	}
	c.Batch, c.Parallel, c.Queue = cmp.Or(c.Batch, 500), cmp.Or(c.Parallel, 4), cmp.Or(c.Queue, 5000)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.Margin = cmp.Or(c.Margin, c.Lease/3)
	return c
}

// brokerIn is a single broker.
func brokerIn(publisher halfmsg.Publisher) map[string]sendloop.Broker {
	return map[string]sendloop.Broker{"": {Publisher: publisher}}
}

// deadTo is the default broker with a dead-letter exchange.
func deadTo(exchange string) map[string]sendloop.Broker {
	return map[string]sendloop.Broker{"": {DeadLetterExchange: exchange}}
}

func inHouse(t *testing.T, config sendloop.Config, test func(h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &house{t: t, store: memstore.New(), fates: map[string]int{}}
		config.Store, config.Metrics = h.store, h
		of := config.Brokers[""]
		of.Publisher = h
		config.Brokers = map[string]sendloop.Broker{"": of}
		config.Pipeline = h.pipeline()
		config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
		h.Sender = sendloop.New(testConfig(config))
		test(h)
		if err := h.Close(context.Background()); err != nil {
			t.Error("close:", err)
		}
	})
}

// pipeline notes what the sender hands on.
func (h *house) pipeline() *delivery.Pipeline {
	return &delivery.Pipeline{
		Confirm: confirmStage{h}, Watchers: []halfmsg.Watcher{h},
		SendLoop: wakeFunc(func() { h.mu.Lock(); h.wakes++; h.mu.Unlock() }),
	}
}

// confirmStage notes what the broker has acknowledged.
type confirmStage struct{ *house }

func (confirmStage) Offer([]halfmsg.Claim, time.Time) {}

func (c confirmStage) OfferAcknowledged(claims []halfmsg.Claim, until time.Time) {
	for i := range claims {
		c.note("acknowledged %s %s", claims[i].ID, claims[i].State)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heldUntil = until
}

func (c confirmStage) DeleteLeftMarkers(claims []halfmsg.Claim) {
	for i := range claims {
		c.note("after ack %s", claims[i].ID)
	}
}

type wakeFunc func()

func (w wakeFunc) Wake() { w() }

func (h *house) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, fmt.Sprintf(format, args...))
}

// confirmTimeout is how long those take that are late.
const confirmTimeout = 10 * time.Second

func (h *house) Publish(
	ctx context.Context, batch []halfmsg.Publishing, answered func([]int, []halfmsg.PublishResult),
) {
	late := look(h, func() func(halfmsg.Publishing) bool { return h.late })
	var first, then []int
	for i, p := range batch {
		if late != nil && late(p) {
			then = append(then, i)
		} else {
			first = append(first, i)
		}
	}
	h.publish(ctx, batch, first, answered)
	if len(then) > 0 {
		time.Sleep(confirmTimeout)
		h.publish(ctx, batch, then, answered)
	}
}

// publish publishes the messages at some places of a batch.
func (h *house) publish(
	ctx context.Context, batch []halfmsg.Publishing, places []int, answered func([]int, []halfmsg.PublishResult),
) {
	answer := look(h, func() answer { return h.answer })
	results := make([]halfmsg.PublishResult, len(places))
	for n, i := range places {
		p := batch[i]
		results[n].Outcome = halfmsg.Acked
		if answer != nil {
			results[n] = answer(ctx, p)
		}
		h.note("publish %s to %s: %s", p.Name.ID, p.Exchange, results[n].Outcome)
		h.mu.Lock()
		h.out = append(h.out, p)
		h.mu.Unlock()
	}
	answered(places, results)
}

func (h *house) Ready() error { return look(h, func() error { return h.away }) }

func (h *house) Moved(moves []halfmsg.Moved) {
	for _, m := range moves {
		h.note("%s %s", m.Name.ID, m.State)
	}
}

func (h *house) Settled(event halfmsg.Event, fate string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fates[event.String()+" "+fate] += n
}
func (h *house) Published(string, string, halfmsg.Outcome, int) {}

func (h *house) Failed(string, string, error) {}

func (h *house) PublishedBatch(string, int, int, time.Duration) {
	h.mu.Lock()
	h.batches++
	h.mu.Unlock()
}

func (h *house) Acked([]halfmsg.Claim) {}

// look reads what the house has noted.
func look[T any](h *house, value func() T) T {
	h.mu.Lock()
	defer h.mu.Unlock()
	return value()
}

// answers says what the broker answers from now on, and whether it takes messages at all.
func (h *house) answers(answer answer, away error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer, h.away = answer, away
}

// isLate says which messages the broker answers late from now on.
func (h *house) isLate(late func(p halfmsg.Publishing) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.late = late
}

func (h *house) published() []halfmsg.Publishing {
	return look(h, func() []halfmsg.Publishing { return slices.Clone(h.out) })
}

const lease = 30 * time.Second

// committed makes messages as the confirm side hands them on: SENDABLE, and held for lease.
func (h *house) committed(ids ...string) (claims []halfmsg.Claim) {
	h.t.Helper()
	for _, id := range ids {
		name := halfmsg.Name{Producer: "orders", ID: id}
		m := halfmsg.Message{Name: name, Exchange: "x", RoutingKey: "key", Body: []byte(id)}
		if id != "bare" {
			m.Headers = map[string]string{"own": "1"}
		}
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

// waiting makes messages that are SENDABLE, due, and without an owner.
func (h *house) waiting(ids ...string) {
	h.t.Helper()
	for _, claim := range h.committed(ids...) {
		h.store.Settle(h.t.Context(), []halfmsg.Settlement{
			{Name: claim.Name, Token: claim.Token, Event: halfmsg.EventReleased},
		})
	}
}

func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%05d", i))
	}
	return ids
}

func (h *house) offer(ids ...string) {
	h.t.Helper()
	h.Offer(h.committed(ids...), time.Now().Add(lease))
}

// pass makes passes as the runner would, until there is no more, and lets everything settle.
func (h *house) pass() {
	h.t.Helper()
	for more := true; more; {
		var err error
		if more, err = h.Pass(h.t.Context()); err != nil {
			h.t.Fatal("pass:", err)
		}
		synctest.Wait()
	}
}

// run makes a pass each second, and whenever it is asked to, for that long.
func (h *house) run(d time.Duration) {
	h.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		h.pass()
		for look(h, func() int { n := h.wakes; h.wakes = 0; return n }) > 0 {
			h.pass()
		}
	}
}

// passWhenWoken makes passes only when the stage asks for them, for that long.
func (h *house) passWhenWoken(d time.Duration) {
	h.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		synctest.Wait()
		for look(h, func() int { n := h.wakes; h.wakes = 0; return n }) > 0 {
			h.pass()
		}
	}
}

func (h *house) want(id string, state halfmsg.State) halfmsg.Record {
	h.t.Helper()
	got := h.store.Peek(halfmsg.Name{Producer: "orders", ID: id})
	if got.State != state {
		h.t.Errorf("%s is %s, want %s", id, got.State, state)
	}
	return got
}

func (h *house) wantNotes(want ...string) {
	h.t.Helper()
	if got := look(h, func() []string { return slices.Clone(h.notes) }); !slices.Equal(got, want) {
		h.t.Errorf("events:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}
