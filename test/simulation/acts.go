package simulation

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/msghandler/msghandler/test/checks"
	"github.com/msghandler/msghandler/test/faults"
	"github.com/msghandler/msghandler/test/wire"
)

// suffix is what operators add to the id of a message that they replay as a message of its own.
const suffix = "-again"

// acts are the operators' acts on messages, as Redis's side of the connections has seen them.
type acts struct {
	world *World
	mu    sync.Mutex
	// asked are the messages that operators have discarded by name, and producers those of the filters; "" is any.
	asked, producers map[string]bool
	// discarded and replayed are when messages were discarded, and last stored again from the archive.
	discarded, replayed map[string]time.Time
	// came is when the last copy of a message came.
	came map[string]time.Time
}

func newActs(w *World) *acts {
	return &acts{
		world: w, asked: map[string]bool{}, producers: map[string]bool{}, discarded: map[string]time.Time{},
		replayed: map[string]time.Time{}, came: map[string]time.Time{},
	}
}

// see takes a call of a script with its reply.
func (a *acts) see(c wire.ScriptCall) {
	discarded, replayed := checks.Acts(c)
	begun := checks.Begun(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range begun {
		delete(a.discarded, key) // a new message has the id
	}
	for _, key := range discarded {
		a.discarded[key] = time.Now()
		a.world.Ledger.Noted(key, "operator", "discards it")
	}
	for _, key := range replayed {
		a.replayed[key] = time.Now()
		a.world.Ledger.Replayed(key, strings.TrimSuffix(key, suffix))
	}
}

// forget notes that Redis has lost what was written since a time.
func (a *acts) forget(since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, of := range []map[string]time.Time{a.discarded, a.replayed} {
		for key, at := range of {
			if !at.Before(since) {
				delete(of, key)
			}
		}
	}
}

// got notes that a copy came.
func (a *acts) got(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.came[key] = time.Now()
}

// cameSince says whether a copy of a message came at a time or later.
func (a *acts) cameSince(key string, at time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.came[key].Before(at)
}

// hasDiscarded says whether an operator has discarded a message that no later one has replaced.
func (a *acts) hasDiscarded(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.discarded[key].IsZero()
}

// wrong lists the discards for which no operator has asked, and the replays without a further copy. still says that a
// message has not ended.
func (a *acts) wrong(still map[string]bool) (found []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key := range a.discarded {
		producer, _, _ := strings.Cut(key, "/")
		if !a.asked[key] && !a.producers[producer] && !a.producers[""] {
			found = append(found, fmt.Sprintf("%s %s: discarded, and no operator has asked for that", faults.Lost, key))
		}
	}
	for key, at := range a.replayed {
		ended := !a.discarded[key].IsZero() || still[key] || a.world.losses.hasLostCopy(key, at)
		if a.came[key].Before(at) && !ended {
			found = append(found, fmt.Sprintf("%s %s: replayed, and no further copy came", faults.Lost, key))
		}
	}
	return found
}
