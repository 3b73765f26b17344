package server

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// watch tells the calls that wait for the fate of messages of the moves that this instance has stored. A wait may be long, so
// all of them together get a part of the places for calls, and those of one producer a part of that: whoever does not wait
// gets through, however long messages take.
type watch struct {
	most, mostOfOne int

	// waiting is how many calls wait, so that moves nobody waits for cost no lock.
	waiting atomic.Int64

	mu         sync.Mutex
	byName     map[halfmsg.Name][]place
	byProducer map[string]int // how many calls of each wait
}

// ear is what one call hears of its messages, which are all one producer's.
type ear struct {
	names []halfmsg.Name
	// bell rings when something was told since it was last heard.
	bell chan struct{}
	// told holds the latest state told of each message, None for nothing. The watch's lock guards it.
	told []halfmsg.State
}

// place is one message of one call.
type place struct {
	ear   *ear
	index int
}

// newWatch returns a watch where that many calls may be under way.
func newWatch(calls int) *watch {
	return &watch{
		most: max(calls/2, 1), mostOfOne: max(calls/4, 1),
		byName: map[halfmsg.Name][]place{}, byProducer: map[string]int{},
	}
}

// listen begins to listen for the names; leave must follow, unless it fails because too many listen already.
func (w *watch) listen(names []halfmsg.Name) (*ear, error) {
	e := &ear{names: names, bell: make(chan struct{}, 1), told: make([]halfmsg.State, len(names))}
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

func (e *ear) producer() string { return e.names[0].Producer }

func (w *watch) leave(e *ear) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range e.names {
		others := slices.DeleteFunc(w.byName[name], func(p place) bool { return p.ear == e })
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

// forget drops what was told of a message before its submit was answered and no longer holds: that submit has made a
// message that was ABANDONED pending again.
func (w *watch) forget(e *ear, state halfmsg.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, told := range e.told {
		if told == state {
			e.told[i] = halfmsg.None
		}
	}
}

// heard calls each with what was told since it was last called.
func (w *watch) heard(e *ear, each func(index int, state halfmsg.State)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, state := range e.told {
		if state != halfmsg.None {
			e.told[i] = halfmsg.None
			each(i, state)
		}
	}
}

// tell passes moves on. It never blocks.
func (w *watch) tell(moves []halfmsg.Moved) {
	if w.waiting.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, move := range moves {
		for _, p := range w.byName[move.Name] {
			p.ear.told[p.index] = move.State
			select {
			case p.ear.bell <- struct{}{}:
			default:
			}
		}
	}
}

// Moved implements halfmsg.Watcher.
func (s *Server) Moved(moves []halfmsg.Moved) {
	s.watch.tell(moves)
	s.tails.tell(moves)
}
