package submit

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// watch notifies waiting calls of the moves that this coordinator has stored. A wait may be long, so waiting calls get
// half of the calls in flight, and the waiting calls of one producer half of that half. The rest stays for other calls.
type watch struct {
	most, mostOfProducer int

	// waiting is how many calls wait, so that moves without waiting calls cost no lock.
	waiting atomic.Int64

	mu         sync.Mutex
	byName     map[halfmsg.Name][]place
	byProducer map[string]int // how many calls of each producer wait
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

// newWatch returns a watch for a server with at most that many calls in flight.
func newWatch(calls int) *watch {
	return &watch{
		most: max(calls/2, 1), mostOfProducer: max(calls/4, 1),
		byName: map[halfmsg.Name][]place{}, byProducer: map[string]int{},
	}
}

// subscribe subscribes to the moves of messages, unless too many calls wait already. unsubscribe must follow.
func (w *watch) subscribe(names []halfmsg.Name) (*subscription, error) {
	s := &subscription{names: names, changed: make(chan struct{}, 1), latest: make([]halfmsg.State, len(names))}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.byProducer[s.producer()] >= w.mostOfProducer:
		return nil, ErrTooManyWaitsOfProducer
	case w.waiting.Load() >= int64(w.most):
		return nil, ErrTooManyWaits
	}
	for i, name := range names {
		w.byName[name] = append(w.byName[name], place{s, i})
	}
	w.byProducer[s.producer()]++
	w.waiting.Add(1)
	return s, nil
}

func (s *subscription) producer() string { return s.names[0].Producer }

func (w *watch) unsubscribe(s *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range s.names {
		others := slices.DeleteFunc(w.byName[name], func(p place) bool { return p.subscription == s })
		if len(others) == 0 {
			delete(w.byName, name)
			continue
		}
		w.byName[name] = others
	}
	if w.byProducer[s.producer()]--; w.byProducer[s.producer()] == 0 {
		delete(w.byProducer, s.producer())
	}
	w.waiting.Add(-1)
}

// discard drops news of a state that came before the answer to the Submit and no longer holds: the Submit has made an
// ABANDONED message pending again.
func (w *watch) discard(s *subscription, state halfmsg.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, latest := range s.latest {
		if latest == state {
			s.latest[i] = halfmsg.None
		}
	}
}

// takeNews calls each for every message with news since the last call.
func (w *watch) takeNews(s *subscription, each func(index int, state halfmsg.State)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, state := range s.latest {
		if state != halfmsg.None {
			s.latest[i] = halfmsg.None
			each(i, state)
		}
	}
}

// Moved implements halfmsg.Watcher.
func (b *Batcher) Moved(moves []halfmsg.Moved) { b.watch.notify(moves) }

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
