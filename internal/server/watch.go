package server

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// watch notifies the calls that wait for the fate of messages of the moves that this coordinator has stored. A wait may
// be long, so waiting calls together get half of the places for calls, and the calls of one producer half of that. The
// rest stays for calls that do not wait.
type watch struct {
	most, mostOfOne int

	// waiting is how many calls wait, so that moves without waiting calls cost no lock.
	waiting atomic.Int64

	mu         sync.Mutex
	byName     map[halfmsg.Name][]place
	byProducer map[string]int // how many calls of each wait
}

// subscription collects the moves of one call's messages, which are all of one producer.
type subscription struct {
	names []halfmsg.Name
	// changed has a token when there is news since the last takeNews.
	changed chan struct{}
	// latest holds the latest state of each message since then, None without news. The watch's lock guards the field.
	latest []halfmsg.State
}

// place is one message of one call.
type place struct {
	subscription *subscription
	index        int
}

// newWatch returns a watch where that many calls may be under way.
func newWatch(calls int) *watch {
	return &watch{
		most: max(calls/2, 1), mostOfOne: max(calls/4, 1),
		byName: map[halfmsg.Name][]place{}, byProducer: map[string]int{},
	}
}

// subscribe begins to subscribe for the names; leave must follow, unless it fails because too many subscribe already.
func (w *watch) subscribe(names []halfmsg.Name) (*subscription, error) {
	e := &subscription{names: names, changed: make(chan struct{}, 1), latest: make([]halfmsg.State, len(names))}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.byProducer[e.producer()] >= w.mostOfOne:
		return nil, errWaitsOfOne
	case w.waiting.Load() >= int64(w.most):
		return nil, errWaits
	}
	for i, name := range names {
		w.byName[name] = append(w.byName[name], place{e, i})
	}
	w.byProducer[e.producer()]++
	w.waiting.Add(1)
	return e, nil
}

func (e *subscription) producer() string { return e.names[0].Producer }

func (w *watch) unsubscribe(e *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range e.names {
		others := slices.DeleteFunc(w.byName[name], func(p place) bool { return p.subscription == e })
		if len(others) == 0 {
			delete(w.byName, name)
			continue
		}
		w.byName[name] = others
	}
	if w.byProducer[e.producer()]--; w.byProducer[e.producer()] == 0 {
		delete(w.byProducer, e.producer())
	}
	w.waiting.Add(-1)
}

// discard drops news of a state that came before the answer to the Submit and no longer holds: the Submit has made an
// ABANDONED message pending again.
func (w *watch) discard(e *subscription, state halfmsg.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, told := range e.latest {
		if told == state {
			e.latest[i] = halfmsg.None
		}
	}
}

// takeNews calls each for every message with news since the last call.
func (w *watch) takeNews(e *subscription, each func(index int, state halfmsg.State)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, state := range e.latest {
		if state != halfmsg.None {
			e.latest[i] = halfmsg.None
			each(i, state)
		}
	}
}

// notify passes moves on. It never blocks.
func (w *watch) notify(moves []halfmsg.Moved) {
	if w.waiting.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, move := range moves {
		for _, p := range w.byName[move.Name] {
			p.subscription.latest[p.index] = move.State
			select {
			case p.subscription.changed <- struct{}{}:
			default:
			}
		}
	}
}

// Moved implements halfmsg.Watcher.
func (s *Server) Moved(moves []halfmsg.Moved) {
	s.watch.notify(moves)
	s.tails.tell(moves)
}
