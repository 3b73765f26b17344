package confirmloop_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
	memstore "github.com/msghandler/msghandler/internal/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is a confirmer between a store in memory, producers and a send side that only takes notes. It runs in a bubble
// of fake time.
type house struct {
	*confirmloop.Confirmer
	t     *testing.T
	store *memstore.Store

	mu sync.Mutex
	// confirm and drop answer Confirm and DeleteBusiness; nil is COMMITTED and nil. Set them with answers and drops.
	confirm confirm
	drop    drop
	notes   []string
	asked   int
	sent    []halfmsg.Claim
	until   []time.Time
	deleted []string
	fates   map[string]int
	litter  int
	paused  bool
	told    []bool // what Paused was told
	wakes   int
	commits int
}

type (
	verdicts = map[string]halfmsg.Verdict
	confirm  = func(ctx context.Context, target halfmsg.Target, ids []string, final bool) (verdicts, error)
	drop     = func(ctx context.Context, target halfmsg.Target, ids []string) error
)

// answers says how producers answer Confirm from now on.
func (h *house) answers(confirm confirm) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.confirm = confirm
}

// drops says how producers answer DeleteBusiness from now on.
func (h *house) drops(drop drop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop = drop
}

// testConfig completes what a test does not choose.
func testConfig(c confirmloop.Config) confirmloop.Config {
	if len(c.Backoff) == 0 {
		c.Backoff = backoff.Steps{
			5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
		}
	}
	c.Attempts, c.Batch = cmp.Or(c.Attempts, 15), cmp.Or(c.Batch, 200)
	c.Lease, c.SendLease = cmp.Or(c.Lease, 30*time.Second), cmp.Or(c.SendLease, 30*time.Second)
	c.Margin, c.DeleteTimeout = cmp.Or(c.Margin, c.Lease/3), cmp.Or(c.DeleteTimeout, 3*time.Second)
	c.CallsPerProducer, c.QueuePerProducer = cmp.Or(c.CallsPerProducer, 4), cmp.Or(c.QueuePerProducer, 2000)
	return c
}

func inHouse(t *testing.T, config confirmloop.Config, test func(h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &house{t: t, store: memstore.New(), fates: map[string]int{}}
		config.Store, config.Callbacks, config.Metrics = h.store, h, h
		config.Pipeline = &delivery.Pipeline{
			Send: sendStage(h.send), Watchers: []halfmsg.Watcher{h},
			ConfirmLoop: wakeFunc(func() { h.mu.Lock(); h.wakes++; h.mu.Unlock() }),
		}
		config.Logger = slog.New(slog.DiscardHandler)
		h.Confirmer = confirmloop.New(testConfig(config))
		test(h)
		if err := h.Close(context.Background()); err != nil {
			t.Error("close:", err)
		}
	})
}

func (h *house) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, fmt.Sprintf(format, args...))
}

func (h *house) Confirm(
	ctx context.Context, target halfmsg.Target, ids []string, final bool,
) (verdicts, error) {
	h.mu.Lock()
	h.asked++
	answer := h.confirm
	h.mu.Unlock()
	if answer != nil {
		return answer(ctx, target, ids, final)
	}
	return all(ids, halfmsg.VerdictCommitted), nil
}

func all(ids []string, verdict halfmsg.Verdict) map[string]halfmsg.Verdict {
	verdicts := map[string]halfmsg.Verdict{}
	for _, id := range ids {
		verdicts[id] = verdict
	}
	return verdicts
}

func (h *house) DeleteBusiness(ctx context.Context, target halfmsg.Target, ids []string) error {
	h.note("delete %s", strings.Join(ids, " "))
	if answer := look(h, func() drop { return h.drop }); answer != nil {
		if err := answer(ctx, target, ids); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deleted = append(h.deleted, ids...)
	return nil
}

func (h *house) Moved(moves []halfmsg.Moved) {
	for _, m := range moves {
		h.note("%s %s", m.Name.ID, m.State)
	}
}

// sendStage is a send stage that only takes what is committed.
type sendStage func(claims []halfmsg.Claim, until time.Time)

func (s sendStage) Offer(claims []halfmsg.Claim, until time.Time) { s(claims, until) }

type wakeFunc func()

func (w wakeFunc) Wake() { w() }

func (h *house) send(claims []halfmsg.Claim, until time.Time) {
	for i := range claims {
		h.note("send %s", claims[i].ID)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = append(h.sent, claims...)
	h.until = append(h.until, until)
}

func (h *house) Settled(event halfmsg.Event, fate string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fates[event.String()+" "+fate] += n
}

func (h *house) Confirmed(string, int, map[string]halfmsg.Verdict, time.Duration, error) {}

func (h *house) Committed(*halfmsg.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commits++
}

func (h *house) Deleted(string, int, time.Duration, error) {}

func (h *house) Paused(_ string, paused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paused = paused
	h.told = append(h.told, paused)
}

func (h *house) MarkersLeft(_ string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.litter += n
}

func (h *house) asks() int         { return look(h, func() int { return h.asked }) }
func (h *house) litters() int      { return look(h, func() int { return h.litter }) }
func (h *house) fate(s string) int { return look(h, func() int { return h.fates[s] }) }

// look reads what the house has noted.
func look[T any](h *house, value func() T) T {
	h.mu.Lock()
	defer h.mu.Unlock()
	return value()
}

func (h *house) sentIDs() []string {
	return look(h, func() (ids []string) {
		for i := range h.sent {
			ids = append(ids, h.sent[i].ID)
		}
		slices.Sort(ids)
		return ids
	})
}

func message(producer, id string) halfmsg.Message {
	return halfmsg.Message{
		Name: halfmsg.Name{Producer: producer, ID: id}, Exchange: "x", Body: []byte(id),
		CallbackTarget: producer + ":9000",
	}
}

// have stores messages of a producer, due now, and returns their names.
func (h *house) have(producer string, ids ...string) (names []halfmsg.Name) {
	h.t.Helper()
	for _, id := range ids {
		h.store.Create(h.t.Context(), []halfmsg.Message{message(producer, id)})
		names = append(names, halfmsg.Name{Producer: producer, ID: id})
	}
	return names
}

func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%05d", i))
	}
	return ids
}

// lease is for how long a Submit claims messages.
const lease = 30 * time.Second

// submit does what the server does with a Submit.
func (h *house) submit(names ...halfmsg.Name) {
	h.t.Helper()
	h.submitAs(h.store.Submit, names...)
}

// submitTrusted does what the server does with the Submit of a trusted producer.
func (h *house) submitTrusted(names ...halfmsg.Name) {
	h.t.Helper()
	h.submitAs(h.store.SubmitTrusted, names...)
}

func (h *house) submitAs(
	submit func(context.Context, []halfmsg.Name, time.Duration) []halfmsg.Submitted, names ...halfmsg.Name,
) {
	h.t.Helper()
	var claims []halfmsg.Claim
	until := time.Now().Add(lease)
	for _, s := range submit(h.t.Context(), names, lease) {
		if s.Claim != nil {
			claims = append(claims, *s.Claim)
		}
	}
	h.Offer(claims, until)
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

func (h *house) wantState(name halfmsg.Name, want halfmsg.State) halfmsg.Record {
	h.t.Helper()
	got := h.store.Peek(name)
	if got.State != want {
		h.t.Errorf("%s is %s, want %s", name, got.State, want)
	}
	return got
}

func (h *house) wantNotes(want ...string) {
	h.t.Helper()
	if got := look(h, func() []string { return slices.Clone(h.notes) }); !slices.Equal(got, want) {
		h.t.Errorf("events:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}
