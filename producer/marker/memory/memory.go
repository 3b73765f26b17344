// Package memory keeps business markers in the process's own memory: for trying things out, and for producers that can
// accept that a restart forgets.
//
// What a restart forgets is this: a message that committed, and whose Submit the coordinator never got, is answered
// with UNKNOWN and ends ABANDONED, where an operator sees it. It is not lost, but somebody has to look.
package memory

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/msghandler/msghandler/producer/marker"
)

// Retention is how long a marker that nobody deleted is kept. It is longer than a coordinator asks on its own: with the
// default limits it gives up after about an hour.
const Retention = 7 * 24 * time.Hour

// sweepInterval is how often the markers past their retention are cleared away. Each sweep walks all markers, so it is
// rare.
const sweepInterval = time.Hour

type mark struct {
	verdict marker.Verdict
	until   time.Time
}

// Store is a marker.Store in memory.
type Store struct {
	mu        sync.Mutex
	marks     map[string]mark
	nextSweep time.Time
}

// New returns an empty store.
func New() *Store {
	return &Store{marks: make(map[string]mark), nextSweep: time.Now().Add(sweepInterval)}
}

// Put implements marker.Store. It never fails unless the context has ended.
func (s *Store) Put(ctx context.Context, ids []string, v marker.Verdict) (map[string]marker.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.sweep(now)
	standing := make(map[string]marker.Verdict, len(ids))
	for _, id := range ids {
		old, found := s.marks[id]
		if !found || !now.Before(old.until) {
			old = mark{verdict: v, until: now.Add(Retention)}
			s.marks[id] = old
		}
		standing[id] = old.verdict
	}
	return standing, nil
}

func (s *Store) sweep(now time.Time) {
	if now.Before(s.nextSweep) {
		return
	}
	maps.DeleteFunc(s.marks, func(_ string, m mark) bool { return !now.Before(m.until) })
	s.nextSweep = now.Add(sweepInterval)
}

// Lookup implements marker.Store. A final question changes nothing: memory cannot tell whether a transaction will
// commit.
func (s *Store) Lookup(ctx context.Context, ids []string, _ bool) (map[string]marker.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	found := make(map[string]marker.Verdict, len(ids))
	for _, id := range ids {
		if m, ok := s.marks[id]; ok && now.Before(m.until) {
			found[id] = m.verdict
		}
	}
	return found, nil
}

// Delete implements marker.Store.
func (s *Store) Delete(ctx context.Context, ids []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.marks, id)
	}
	return nil
}

// Len counts the markers that are kept.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.marks)
}

// Capabilities implements marker.Store.
func (s *Store) Capabilities() marker.Capabilities { return marker.Capabilities{} }
