// Package batch gathers concurrent calls: items that arrive while a batch is in flight leave with the next batch.
//
// Nothing waits for a timer. A lone call leaves at once as a batch of its own. Under load batches grow to the arrivals
// of a round trip, and to the calls that are ready to run when a batch is taken.
package batch

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// ErrBusy says that as many items are waiting as may wait. No item of the call was accepted.
var ErrBusy = errors.New("too many calls are waiting")

// Config says how a Group gathers.
type Config struct {
	// Max is how many items a batch holds at most.
	Max int
	// Parallel is how many batches may be in flight at once.
	Parallel int
	// Waiting is how many items may wait for a batch; a call past it gets ErrBusy.
	Waiting int
	// Timeout bounds the context of each batch. The callers' contexts have no effect on a batch: a caller that leaves
	// cancels no other call.
	Timeout time.Duration
	// Counting serves servers that count what callers hold, such as the bytes of their requests. Until Counting ends, a
	// call whose context has ended drops its waiting items and returns when its items in flight are answered. Nil: such a
	// call returns at once, and its items are still done.
	Counting context.Context
}

// Group gathers items of type T and hands them in batches to a function, which answers each with an R. A Group is safe
// for concurrent use.
type Group[T, R any] struct {
	config Config
	laneOf func(item T) string
	do     func(ctx context.Context, items []T) []R

	mu sync.Mutex
	// lanes are those that have had an item, by name. An empty lane costs next to nothing.
	lanes map[string]*lane[T, R]
	// waiting counts the items without a batch; gone counts those besides whose callers have left.
	waiting, gone int

	// runners are the goroutines that do batches.
	runners lifecycle.Group
}

// lane is the items that share batches.
type lane[T, R any] struct {
	// waiting are the items without a batch.
	waiting []entry[T, R]
	running int
}

// entry is a waiting item of a call.
type entry[T, R any] struct {
	call  *call[T, R]
	index int
}

// call is a call of Do. The group's mu guards its fields.
type call[T, R any] struct {
	items   []T
	results []R
	// missing counts the items without a result, waiting the items without a batch.
	missing, waiting int
	// left says that the caller has left, and its waiting items are dropped.
	left bool
	done chan struct{}
}

// New returns a Group that answers items with do. do must return a result for each item, in their order.
func New[T, R any](config Config, do func(ctx context.Context, items []T) []R) *Group[T, R] {
	return NewInLanes(config, func(T) string { return "" }, do)
}

// NewInLanes is New for items of which some may be answered much later than others. Only items of one lane share a
// batch, each lane has Config.Parallel batches in flight, and so no lane waits for another. There must be few lanes.
// laneOf must not block.
func NewInLanes[T, R any](
	config Config, laneOf func(item T) string, do func(ctx context.Context, items []T) []R,
) *Group[T, R] {
	return &Group[T, R]{config: config, laneOf: laneOf, do: do, lanes: map[string]*lane[T, R]{}}
}

// Do has items answered, in batches shared with other calls, and returns their results in order. Do fails with ErrBusy
// when too many items wait, and with the context's error when the context ends first; the items may then still be done,
// see Config.Counting. The items must not be changed.
func (g *Group[T, R]) Do(ctx context.Context, items ...T) ([]R, error) {
	if len(items) == 0 {
		return nil, nil
	}
	c, err := g.enqueue(items)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.done:
		return c.results, nil
	case <-ctx.Done():
		if g.config.Counting != nil {
			g.drop(c)
			select {
			case <-c.done:
			case <-g.config.Counting.Done():
			}
		}
		return nil, ctx.Err()
	}
}

// Wait waits until no batch is in flight, including batches whose callers have left, or until the context ends.
func (g *Group[T, R]) Wait(ctx context.Context) error { return g.runners.Wait(ctx) }

// drop drops the waiting items of a call.
func (g *Group[T, R]) drop(c *call[T, R]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.left, c.items = true, nil
	g.gone += c.waiting
	g.waiting -= c.waiting
	c.answered(c.waiting)
	if g.gone > g.waiting {
		for _, l := range g.lanes {
			l.waiting = slices.DeleteFunc(l.waiting, func(e entry[T, R]) bool { return e.call.left })
		}
		g.gone = 0
	}
}

// answered counts items that are answered or dropped.
func (c *call[T, R]) answered(items int) {
	if items == 0 {
		return
	}
	if c.missing -= items; c.missing == 0 {
		close(c.done)
	}
}

// Waiting is how many items wait for a batch.
func (g *Group[T, R]) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

func (g *Group[T, R]) enqueue(items []T) (*call[T, R], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// A call larger than the limit is accepted when nothing waits; otherwise such a call would be refused for ever.
	if g.waiting > 0 && g.waiting+len(items) > g.config.Waiting {
		return nil, ErrBusy
	}
	c := &call[T, R]{
		items: items, results: make([]R, len(items)), missing: len(items), waiting: len(items), done: make(chan struct{}),
	}
	g.waiting += len(items)
	for i := range items {
		name := g.laneOf(items[i])
		l := g.lanes[name]
		if l == nil {
			l = &lane[T, R]{}
			g.lanes[name] = l
		}
		begins := len(l.waiting) == 0 || l.waiting[len(l.waiting)-1].call != c
		l.waiting = append(l.waiting, entry[T, R]{call: c, index: i})
		if begins && l.running < g.config.Parallel {
			l.running++
			g.runners.Go(func() { g.run(l) })
		}
	}
	return c, nil
}

// run does batches of a lane until nothing waits there. Before each batch it yields to goroutines that are ready to
// run: on a busy machine they bring items for the same batch.
func (g *Group[T, R]) run(l *lane[T, R]) {
	for {
		runtime.Gosched()
		entries, items := g.next(l)
		if entries == nil {
			return
		}
		g.answer(entries, items)
	}
}

// next takes the next batch of a lane, or ends this runner when nothing waits.
func (g *Group[T, R]) next(l *lane[T, R]) (entries []entry[T, R], items []T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(l.waiting), g.config.Max)
	entries, items = make([]entry[T, R], 0, n), make([]T, 0, n)
	for len(l.waiting) > 0 && len(items) < g.config.Max {
		e := l.waiting[0]
		l.waiting[0] = entry[T, R]{} // otherwise the call stays in memory as long as the queue is not empty
		l.waiting = l.waiting[1:]
		if e.call.left {
			g.gone--
			continue
		}
		e.call.waiting--
		g.waiting--
		entries, items = append(entries, e), append(items, e.call.items[e.index])
	}
	if len(items) > 0 {
		return entries, items
	}
	l.running--
	l.waiting = nil
	return nil, nil
}

func (g *Group[T, R]) answer(entries []entry[T, R], items []T) {
	ctx, cancel := context.WithTimeout(context.Background(), g.config.Timeout)
	defer cancel()
	results := g.do(ctx, items)

	g.mu.Lock()
	defer g.mu.Unlock()
	for i, e := range entries {
		e.call.results[e.index] = results[i]
		e.call.answered(1)
	}
}
