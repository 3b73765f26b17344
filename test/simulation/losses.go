package simulation

import (
	"maps"
	"sync"
	"time"
)

// losses are the copies that the broker has lost by its own fault.
type losses struct {
	world *World
	mu    sync.Mutex
	// stored is when the broker has last stored a message.
	stored map[string]time.Time
	// copies and effects are when the broker has lost the copy of a message for the ledger, and the one for the effect.
	copies, effects map[string]time.Time
}

func newLosses(w *World) *losses {
	return &losses{
		world: w, stored: map[string]time.Time{}, copies: map[string]time.Time{}, effects: map[string]time.Time{},
	}
}

// store notes that the broker is about to store a message, or to forget it.
func (l *losses) store(key string, forgotten bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if forgotten {
		l.copies[key], l.effects[key] = time.Now(), time.Now()
		return
	}
	l.stored[key] = time.Now()
}

// empty notes that all queues have lost what they held: what was stored, and has not come since.
func (l *losses) empty() {
	effects := l.world.effects.counts()
	l.mu.Lock()
	stored := maps.Clone(l.stored)
	l.mu.Unlock()
	for key, at := range stored {
		came := l.world.acts.cameSince(key, at)
		l.mu.Lock()
		if !came {
			l.copies[key] = time.Now()
		}
		if effects[key] == 0 {
			l.effects[key] = time.Now()
		}
		l.mu.Unlock()
	}
}

// hasLost says whether the broker has lost a copy of a message.
func (l *losses) hasLost(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.copies[key].IsZero() || !l.effects[key].IsZero()
}

// any says whether the broker has lost a copy.
func (l *losses) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.copies)+len(l.effects) > 0
}

// hasLostCopy says whether the broker has lost a copy for the ledger at a time or later.
func (l *losses) hasLostCopy(key string, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.copies[key].Before(since)
}

// withoutEffect counts the messages that came and whose effect the broker has lost.
func (l *losses) withoutEffect(counts map[string]int) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.effects {
		if counts[key] == 0 && l.world.Ledger.Delivered(key) > 0 {
			n++
		}
	}
	return n
}
