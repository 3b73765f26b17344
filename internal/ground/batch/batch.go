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

// ErrBusy says that as many items are waiting in a lane as may wait there. No item of the call was accepted.
var ErrBusy = errors.New("too many calls are waiting")

// Config says how a Group gathers.
type Config struct {
	// Max is how many items a batch holds at most.
	Max int
	// Parallel is how many batches may be in flight at once.
	Parallel int
	// Waiting is how many items of a lane may wait for a batch; a call past it gets ErrBusy.
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

	// runners are the goroutines that do batches.
	runners lifecycle.Group
}

// lane is the items that share batches. The group's mu guards its fields, and those of a call and its parts.
type lane[T, R any] struct {
	queue []entry[T, R]
	// waiting counts the items in the queue whose callers are there, gone those whose callers have left.
	waiting, gone int
	running       int
}

// entry is an item of a call without a batch.
type entry[T, R any] struct {
	part  *part[T, R]
	index int
}

// part is the items of a call in one lane.
type part[T, R any] struct {
	call *call[T, R]
	lane *lane[T, R]
	// items counts them all, waiting those without a batch.
	items, waiting int
}

// call is a call of Do.
type call[T, R any] struct {
	items   []T
	results []R
	parts   []*part[T, R]
	// missing counts the items without a result.
	missing int
	// left says that the caller has left, and its waiting items are dropped.
	left bool
	done chan struct{}
}

// New returns a Group that answers items with do. do must return a result for each item, in their order.
func New[T, R any](config Config, do func(ctx context.Context, items []T) []R) *Group[T, R] {
	return NewInLanes(config, func(T) string { return "" }, do)
}

// NewInLanes is New for items of which some may be answered much later than others. Only items of one lane share a
// batch, and each lane has Config.Parallel batches in flight and Config.Waiting places. So no lane waits for another.
// There must be few lanes. laneOf must not block.
func NewInLanes[T, R any](
	config Config, laneOf func(item T) string, do func(ctx context.Context, items []T) []R,
) *Group[T, R] {
	return &Group[T, R]{config: config, laneOf: laneOf, do: do, lanes: map[string]*lane[T, R]{}}
}

// Do has items answered, in batches shared with other calls, and returns their results in order. Do fails with ErrBusy
// when too many items wait in a lane, and with the context's error when the context ends first; the items may then
// still be done, see Config.Counting. The items must not be changed.
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
	for _, p := range c.parts {
		l, dropped := p.lane, p.waiting
		p.waiting = 0
		l.waiting -= dropped
		if l.gone += dropped; l.gone > l.waiting {
			l.queue = slices.DeleteFunc(l.queue, func(e entry[T, R]) bool { return e.part.call.left })
			l.gone = 0
		}
		c.answered(dropped)
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

// Waiting is how many items wait for a batch, in all lanes together.
func (g *Group[T, R]) Waiting() (items int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.lanes {
		items += l.waiting
	}
	return items
}

func (g *Group[T, R]) enqueue(items []T) (*call[T, R], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &call[T, R]{items: items, results: make([]R, len(items)), missing: len(items), done: make(chan struct{})}
	entries := make([]entry[T, R], len(items))
	for i := range items {
		p := c.part(g.lane(g.laneOf(items[i])))
		p.items++
		entries[i] = entry[T, R]{part: p, index: i}
	}
	for _, p := range c.parts {
		// A call larger than the limit is accepted when nothing waits; otherwise such a call would be refused for ever.
		if p.lane.waiting > 0 && p.lane.waiting+p.items > g.config.Waiting {
			return nil, ErrBusy
		}
	}
	for _, e := range entries {
		e.part.lane.queue = append(e.part.lane.queue, e)
	}
	for _, p := range c.parts {
		p.waiting = p.items
		p.lane.waiting += p.items
		if p.lane.running < g.config.Parallel {
			p.lane.running++
			g.runners.Go(func() { g.run(p.lane) })
		}
	}
	return c, nil
}

// lane is the lane of a name, new or known.
func (g *Group[T, R]) lane(name string) *lane[T, R] {
	l := g.lanes[name]
	if l == nil {
		l = &lane[T, R]{}
		g.lanes[name] = l
	}
	return l
}

// part is the part of a call in a lane, new or known. There are few lanes, and most calls have a single item.
func (c *call[T, R]) part(in *lane[T, R]) *part[T, R] {
	for _, p := range c.parts {
		if p.lane == in {
			return p
		}
	}
	p := &part[T, R]{call: c, lane: in}
	c.parts = append(c.parts, p)
	return p
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
	n := min(len(l.queue), g.config.Max)
	entries, items = make([]entry[T, R], 0, n), make([]T, 0, n)
	for len(l.queue) > 0 && len(items) < g.config.Max {
		e := l.queue[0]
		l.queue[0] = entry[T, R]{} // otherwise the call stays in memory as long as the queue is not empty
		l.queue = l.queue[1:]
		if e.part.call.left {
			l.gone--
			continue
		}
		e.part.waiting--
		l.waiting--
		entries, items = append(entries, e), append(items, e.part.call.items[e.index])
	}
	if len(items) > 0 {
		return entries, items
	}
	l.running--
	l.queue = nil
	return nil, nil
}

func (g *Group[T, R]) answer(entries []entry[T, R], items []T) {
	ctx, cancel := context.WithTimeout(context.Background(), g.config.Timeout)
	defer cancel()
	results := g.do(ctx, items)

	g.mu.Lock()
	defer g.mu.Unlock()
	for i, e := range entries {
		e.part.call.results[e.index] = results[i]
		e.part.call.answered(1)
	}
}
