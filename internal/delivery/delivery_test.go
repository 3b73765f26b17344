package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
)

func leased(ids ...string) (all []delivery.Leased) {
	for _, id := range ids {
		claim := halfmsg.Claim{State: halfmsg.Pending}
		claim.Name = halfmsg.Name{Producer: "orders", ID: id}
		all = append(all, delivery.Leased{Claim: claim, Until: time.Now().Add(30 * time.Second)})
	}
	return all
}

func TestLastingKeepsTheOrder(t *testing.T) {
	all := leased("1", "2", "3", "4")
	all[1].Until = time.Now().Add(time.Second)
	all[3].Until = time.Now().Add(-time.Second)
	lasting, ending := delivery.Lasting(all, 10*time.Second)
	if got := fmt.Sprint(names(lasting), names(ending)); got != "[1 3] [2 4]" {
		t.Errorf("lasting and ending are %s", got)
	}
	if lasting, ending = delivery.Lasting(all[:1], 10*time.Second); len(lasting) != 1 || len(ending) != 0 {
		t.Errorf("lasting and ending are %v, %v", names(lasting), names(ending))
	}
	ended := []delivery.Leased{all[3], all[1]}
	if lasting, ending = delivery.Lasting(ended, 10*time.Second); len(lasting) != 0 || len(ending) != 2 {
		t.Errorf("of ending failures, lasting and ending are %v, %v", names(lasting), names(ending))
	}
	ended = append(ended, all[0])
	if lasting, ending = delivery.Lasting(ended, 10*time.Second); len(lasting) != 1 || len(ending) != 2 {
		t.Errorf("with a lasting failure, lasting and ending are %v, %v", names(lasting), names(ending))
	}
}

func TestClaimsOfAPassAreBacklog(t *testing.T) {
	until := time.Now()
	for backlog, hold := range map[bool]func([]halfmsg.Claim, time.Time) []delivery.Leased{
		true: delivery.BacklogWithLease, false: delivery.WithLease,
	} {
		for _, h := range hold(delivery.Claims(leased("1", "2")), until) {
			if h.Backlog != backlog || h.Until != until || h.Producer != "orders" {
				t.Errorf("%+v, want backlog %t", h, backlog)
			}
		}
	}
}

func names(all []delivery.Leased) (ids []string) {
	for _, h := range all {
		ids = append(ids, h.ID)
	}
	return ids
}

func TestCapacityBoundsNumberAndSize(t *testing.T) {
	capacity := delivery.Capacity{Claims: 100, Bytes: 1 << 20}
	small := leased("1")
	capacity.Add(small...)
	if got := capacity.Free(); got < 60 || got > 99 {
		t.Errorf("%d fit beside a small message", got)
	}
	large := leased("2", "3")
	for i := range large {
		large[i].Body = make([]byte, 512<<10)
	}
	capacity.Add(large...)
	if got := capacity.Free(); got != 0 || capacity.Waiting() != 3 {
		t.Errorf("%d fit beside a whole MiB, %d are in", got, capacity.Waiting())
	}
	capacity.Remove(large...)
	capacity.Remove(small...)
	if got := capacity.Free(); got < 1 || got > 10 || capacity.Waiting() != 0 {
		t.Errorf("%d fit when bodies are large, %d are in", got, capacity.Waiting())
	}
}

// How many bodies fit is reckoned from those that came last.
func TestCapacityExpectsBodiesLikeTheLatest(t *testing.T) {
	sized := func(size int) delivery.Leased {
		return delivery.Leased{Claim: halfmsg.Claim{Message: halfmsg.Message{Body: make([]byte, size)}}}
	}
	capacity := delivery.Capacity{Claims: 10_000, Bytes: 160 << 10}
	want := func(what string, free, half int) {
		t.Helper()
		if capacity.Free() != free || capacity.FreeHalf() != half {
			t.Errorf("%s: %d fit, or %d in half of it; want %d and %d", what, capacity.Free(), capacity.FreeHalf(), free, half)
		}
	}
	want("before any was seen they are taken for 16 KiB", 1+10, 1+5)
	capacity = delivery.Capacity{Claims: 10_000, Bytes: 10_001}
	capacity.Add(sized(1000))
	want("one of 1,000 bytes, which makes 500", 1+9001/500, 1+4001/500)
	capacity.Add(sized(900), sized(1100))
	want("two more, which makes 750", 1+7001/750, 1+2001/750)
	capacity = delivery.Capacity{Claims: 9, Bytes: 100}
	capacity.Add(sized(0))
	want("an empty one", 8, 4)
	capacity.Add(make([]delivery.Leased, 9)...)
	want("more than there is room for", 0, 0)
	capacity = delivery.Capacity{Claims: 1000, Bytes: 100}
	capacity.Add(sized(0))
	want("where an empty one makes a byte", 101, 51)
}

func TestIsolateSetsOnlyPoisonAside(t *testing.T) {
	var good []int
	var bad []string
	delivery.Isolate([]int{1, 2, 3, 4, 5, 6, 7}, func(part []int) {
		if slices.Contains(part, 3) || slices.Contains(part, 6) {
			panic("poison")
		}
		good = append(good, part...)
	}, func(n int, failure *lifecycle.PanicError) {
		bad = append(bad, fmt.Sprint(n, " ", failure))
		if !strings.Contains(string(failure.Stack), "delivery_test.go") {
			t.Error("the stack does not show the place of the panic")
		}
	})
	if fmt.Sprint(good) != "[1 2 4 5 7]" || fmt.Sprint(bad) != "[3 panic: poison 6 panic: poison]" {
		t.Errorf("good %v, bad %v", good, bad)
	}
}

// shards is a store of which one part may be away.
type shards struct {
	away  func(id string) bool
	calls atomic.Int64
}

func (s *shards) Settle(_ context.Context, settlements []halfmsg.Settlement) []halfmsg.Result {
	s.calls.Add(1)
	results := make([]halfmsg.Result, len(settlements))
	for i, w := range settlements {
		results[i].State = halfmsg.Sendable
		if s.away(w.Name.ID) {
			results[i] = halfmsg.Result{Err: fmt.Errorf("dial: %w", halfmsg.ErrUnavailable)}
		}
	}
	return results
}

type notes struct {
	moved []string
	fates []string
	// held is how long a batch was held by Settle.
	held time.Duration
}

func (n *notes) Moved(moves []halfmsg.Moved) {
	for _, m := range moves {
		n.moved = append(n.moved, m.Name.ID)
	}
}

func (n *notes) Settled(event halfmsg.Event, fate string, messages int) {
	n.fates = append(n.fates, fmt.Sprint(event, " ", fate, " ", messages))
}

func settle(ctx context.Context, store halfmsg.Settler, n *notes, all []delivery.Leased) (groups []string) {
	var work lifecycle.Group
	settler := delivery.Settler{
		Store: store, Watcher: n, Metrics: n, Logger: slog.New(slog.DiscardHandler),
		Failures: loglimit.NewGatherer(slog.New(slog.DiscardHandler)), Work: &work,
	}
	outcomes := make([]delivery.Outcome, len(all))
	for i, h := range all {
		outcomes[i] = delivery.Outcome{Leased: h, Event: halfmsg.EventCommitted}
	}
	begun := time.Now()
	settler.Settle(ctx, outcomes, func(outcomes []delivery.Outcome, results []halfmsg.Result) {
		group := ""
		for i, w := range outcomes {
			group += fmt.Sprint(w.ID, " ", results[i].Err == nil, " ")
		}
		groups = append(groups, strings.TrimSpace(group))
	})
	n.held = time.Since(begun)
	_ = work.Wait(context.Background())
	return groups
}

func TestUnavailableShardDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		begun := time.Now()
		store := &shards{away: func(id string) bool { return id == "2" && time.Since(begun) < 10*time.Second }}
		groups := settle(t.Context(), store, &n, leased("1", "2", "3"))
		if want := []string{"1 true 3 true", "2 true"}; !slices.Equal(groups, want) {
			t.Errorf("groups %q", groups)
		}
		if fmt.Sprint(n.moved, n.fates) != "[1 3 2] [committed stored 2 committed stored 1]" {
			t.Errorf("told %v, %v", n.moved, n.fates)
		}
		if calls := store.calls.Load(); calls > 15 {
			t.Errorf("asked %d times in 10 s", calls)
		}
		if n.held > 0 {
			t.Errorf("the batch was held for %v", n.held)
		}
	})
}

// A batch may hold messages of the shard that is away alone. It gives its place back when the store answers others.
func TestAwayShardsBatchHoldsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work lifecycle.Group
		begun := time.Now()
		store := &shards{away: func(id string) bool { return id == "away" && time.Since(begun) < 10*time.Second }}
		settler := delivery.Settler{
			Store: store, Logger: slog.New(slog.DiscardHandler), Work: &work,
			Failures: loglimit.NewGatherer(slog.New(slog.DiscardHandler)),
		}
		var stored atomic.Int64
		settle := func(id string) {
			settler.Settle(t.Context(), []delivery.Outcome{{Leased: leased(id)[0], Event: halfmsg.EventCommitted}},
				func(outcomes []delivery.Outcome, _ []halfmsg.Result) { stored.Add(int64(len(outcomes))) })
		}
		go func() {
			time.Sleep(time.Second)
			settle("good")
		}()
		settle("away")
		if held := time.Since(begun); held < time.Second || held > 4*time.Second {
			t.Errorf("the batch was held for %v", held)
		}
		_ = work.Wait(context.Background())
		if calls := store.calls.Load(); stored.Load() != 2 || calls > 16 {
			t.Errorf("%d outcomes are stored with %d calls", stored.Load(), calls)
		}
	})
}

// A store may take claims and no outcomes. What waits beside the batches must not grow with each batch.
func TestManyLateOutcomesHoldTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work lifecycle.Group
		begun := time.Now()
		settler := delivery.Settler{
			Store:  &shards{away: func(id string) bool { return id != "good" && time.Since(begun) < 10*time.Second }},
			Logger: slog.New(slog.DiscardHandler), Failures: loglimit.NewGatherer(slog.New(slog.DiscardHandler)), Work: &work,
		}
		outcomes := []delivery.Outcome{{Leased: leased("good")[0], Event: halfmsg.EventCommitted}}
		for range 4000 {
			outcomes = append(outcomes, delivery.Outcome{Leased: leased("away")[0], Event: halfmsg.EventCommitted})
		}
		var stored atomic.Int64
		for batch := range 4 {
			settler.Settle(t.Context(), outcomes, func(outcomes []delivery.Outcome, _ []halfmsg.Result) {
				stored.Add(int64(len(outcomes)))
			})
			if held := time.Since(begun) > 0; held != (batch >= 2) {
				t.Errorf("batch %d holds its place: %v", batch, held)
			}
		}
		_ = work.Wait(context.Background())
		if n := int(stored.Load()); n != 4*len(outcomes) {
			t.Errorf("%d outcomes are stored", n)
		}
	})
}

func TestRetriesEndWithLeaseOrContext(t *testing.T) {
	for name, short := range map[string]bool{"lease": false, "context": true} {
		synctest.Test(t, func(t *testing.T) {
			var n notes
			ctx, limit := t.Context(), 33*time.Second
			if short {
				var cancel context.CancelFunc
				limit = 2 * time.Second
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			begun := time.Now()
			groups := settle(ctx, &shards{away: func(string) bool { return true }}, &n, leased("1"))
			took := time.Since(begun)
			if took > limit || took < limit/2 || !slices.Equal(groups, []string{"1 false"}) {
				t.Errorf("%s: gave up after %v: %q", name, took, groups)
			}
			if fmt.Sprint(n.moved, n.fates) != "[] [committed unstored 1]" {
				t.Errorf("%s: told %v, %v", name, n.moved, n.fates)
			}
		})
	}
}

// impatient is a store that answers nothing to a call whose context has ended.
type impatient struct{ settled int }

func (s *impatient) Settle(ctx context.Context, settlements []halfmsg.Settlement) []halfmsg.Result {
	results := make([]halfmsg.Result, len(settlements))
	for i := range results {
		if err := ctx.Err(); err != nil {
			results[i].Err = fmt.Errorf("%w: %w", halfmsg.ErrUnavailable, err)
		}
	}
	s.settled += len(results)
	return results
}

func TestOutcomesAreStoredWhileStopping(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var n notes
	store := &impatient{}
	groups := settle(ctx, store, &n, leased("1", "2"))
	if !slices.Equal(groups, []string{"1 true 2 true"}) || store.settled != 2 {
		t.Errorf("outcomes %q, in a store with a call about %d messages", groups, store.settled)
	}
}

func TestCausesAreCut(t *testing.T) {
	if got := delivery.CauseOf(nil); got != "" {
		t.Errorf("no error says %q", got)
	}
	long := delivery.CauseOf(errors.New(strings.Repeat("ü", 5000)))
	if len([]rune(long)) != halfmsg.MaxCause {
		t.Errorf("%d characters are kept", len([]rune(long)))
	}
}

// says is a store that gives each word the same answer.
type says halfmsg.Result

func (s says) Settle(_ context.Context, settlements []halfmsg.Settlement) []halfmsg.Result {
	return slices.Repeat([]halfmsg.Result{halfmsg.Result(s)}, len(settlements))
}

func TestFateOfAnOutcome(t *testing.T) {
	committed, rolledBack, unknown := halfmsg.EventCommitted, halfmsg.EventRolledBack, halfmsg.EventUnknown
	for _, c := range []struct {
		event halfmsg.Event
		state halfmsg.State
		err   error
		want  string
	}{
		{committed, halfmsg.Sendable, nil, delivery.Stored},
		{committed, halfmsg.RolledBack, halfmsg.ErrIllegal, delivery.Contradiction},
		{committed, halfmsg.RolledBack, halfmsg.ErrLeaseLost, delivery.Contradiction},
		{committed, halfmsg.Done, halfmsg.ErrIllegal, delivery.Refused},
		{committed, halfmsg.Pending, halfmsg.ErrLeaseLost, delivery.LeaseLost},
		{rolledBack, halfmsg.Sendable, halfmsg.ErrLeaseLost, delivery.Contradiction},
		{rolledBack, halfmsg.Acknowledged, halfmsg.ErrIllegal, delivery.Contradiction},
		{rolledBack, halfmsg.Done, halfmsg.ErrIllegal, delivery.Contradiction},
		{rolledBack, halfmsg.Dead, halfmsg.ErrIllegal, delivery.Contradiction},
		{rolledBack, halfmsg.RolledBack, halfmsg.ErrIllegal, delivery.Refused},
		{rolledBack, halfmsg.Abandoned, halfmsg.ErrIllegal, delivery.Refused},
		{unknown, halfmsg.Done, halfmsg.ErrIllegal, delivery.Refused},
		{unknown, halfmsg.RolledBack, halfmsg.ErrLeaseLost, delivery.LeaseLost},
		{unknown, halfmsg.Pending, halfmsg.ErrNotFound, delivery.Refused},
	} {
		var n notes
		settler := delivery.Settler{
			Store: says{State: c.state, Err: c.err}, Metrics: &n, Logger: slog.New(slog.DiscardHandler),
			Failures: loglimit.NewGatherer(slog.New(slog.DiscardHandler)),
		}
		settler.Settle(t.Context(), []delivery.Outcome{{Leased: leased("1")[0], Event: c.event}},
			func([]delivery.Outcome, []halfmsg.Result) {})
		if want := fmt.Sprint(c.event, " ", c.want, " 1"); !slices.Equal(n.fates, []string{want}) {
			t.Errorf("%s of a message that is %s (%v): told %q, want %q", c.event, c.state, c.err, n.fates, want)
		}
	}
}

func TestUnstoredOutcomesAreLoggedOnce(t *testing.T) {
	var log strings.Builder
	store := shards{away: func(id string) bool { return id != "2" }}
	settler := delivery.Settler{Store: &store, Failures: loglimit.NewGatherer(slog.New(slog.NewTextHandler(&log, nil)))}
	var outcomes []delivery.Outcome
	for _, h := range leased("1", "2", "3") {
		h.Until = time.Now()
		outcomes = append(outcomes, delivery.Outcome{Leased: h, Event: halfmsg.EventCommitted})
	}
	settler.Settle(t.Context(), outcomes, func([]delivery.Outcome, []halfmsg.Result) {})
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "count=2") {
		t.Errorf("logged %q, want a single line about two messages", got)
	}
	log.Reset()
	settler.Settle(t.Context(), outcomes[1:2], func([]delivery.Outcome, []halfmsg.Result) {})
	if got := log.String(); got != "" {
		t.Errorf("logged %q about stored outcomes", got)
	}
}
