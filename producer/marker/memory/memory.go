// Package memory keeps business markers in the memory of the process: for trials, and for producers that can accept
// the loss of markers at a restart.
//
// After a restart, a committed message whose Submit the coordinator never got is answered with UNKNOWN. Such a
// message ends ABANDONED, and an operator has to decide about the message. The message is not lost.
package memory

import (
	"context"
	"crypto/rand"
	"maps"
	"sync"
	"time"

	"github.com/msghandler/msghandler/producer/marker"
)

// Retention is how long a marker is kept that was not deleted: seven days. With the default limits a coordinator stops
// asking after about an hour.
const Retention = 7 * 24 * time.Hour

// A rolled-back marker is kept after Delete too, so that a slower run of its id in this process learns about the
// rollback. The marker is kept for RolledBackRetention. At most MaxRolledBack such markers are kept, about 15 MB: the
// oldest is dropped first.
const (
	RolledBackRetention = 24 * time.Hour
	MaxRolledBack       = 100_000
)

// sweepInterval is how often expired markers are removed. A sweep walks all markers, so sweeps are rare.
const sweepInterval = time.Hour

type mark struct {
	verdict marker.Verdict
	until   time.Time
}

// Store is a marker.Store in memory.
type Store struct {
	identity  string
	mu        sync.Mutex
	marks     map[string]mark
	nextSweep time.Time
	// rolledBack lists the rolled-back markers in the order in which they expire; some of them may be withdrawn.
	rolledBack []ending
}

// ending is when a rolled-back marker ends.
type ending struct {
	id    string
	until time.Time
}

// New returns an empty store.
func New() *Store {
	return &Store{identity: rand.Text()[:12], marks: make(map[string]mark), nextSweep: time.Now().Add(sweepInterval)}
}

// Put implements marker.Store. Put fails only when the context has ended.
func (s *Store) Put(ctx context.Context, ids []string, v marker.Verdict) (map[string]marker.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	defer s.sweep(now)
	standing := make(map[string]marker.Verdict, len(ids))
	for _, id := range ids {
		old, found := s.marks[id]
		if !found || !now.Before(old.until) {
			old = s.mark(id, v, now)
		}
		standing[id] = old.verdict
	}
	return standing, nil
}

// mark leaves a new marker.
func (s *Store) mark(id string, v marker.Verdict, now time.Time) mark {
	m := mark{verdict: v, until: now.Add(Retention)}
	if v == marker.RolledBack {
		m.until = now.Add(RolledBackRetention)
		s.rolledBack = append(s.rolledBack, ending{id, m.until})
	}
	s.marks[id] = m
	return m
}

func (s *Store) sweep(now time.Time) {
	s.endRolledBack(now)
	if now.Before(s.nextSweep) {
		return
	}
	maps.DeleteFunc(s.marks, func(_ string, m mark) bool { return !now.Before(m.until) })
	s.nextSweep = now.Add(sweepInterval)
}

// endRolledBack removes the expired rolled-back markers, and the oldest beyond MaxRolledBack.
func (s *Store) endRolledBack(now time.Time) {
	ended := 0
	for ended < len(s.rolledBack) {
		e := s.rolledBack[ended]
		if len(s.rolledBack)-ended <= MaxRolledBack && now.Before(e.until) {
			break
		}
		if m := s.marks[e.id]; m.verdict == marker.RolledBack && m.until.Equal(e.until) {
			delete(s.marks, e.id)
		}
		ended++
	}
	s.rolledBack = s.rolledBack[ended:]
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
	return s.remove(ctx, ids, marker.Committed)
}

// Withdraw implements marker.Withdrawer.
func (s *Store) Withdraw(ctx context.Context, ids []string) error {
	return s.remove(ctx, ids, marker.RolledBack)
}

func (s *Store) remove(ctx context.Context, ids []string, v marker.Verdict) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.marks[id].verdict == v {
			delete(s.marks, id)
		}
	}
	return nil
}

// Len counts the kept markers.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.marks)
}

// Identity implements marker.Store: each store of each process has its own.
func (s *Store) Identity(context.Context) (string, error) { return s.identity, nil }

// Capabilities implements marker.Store.
func (s *Store) Capabilities() marker.Capabilities { return marker.Capabilities{} }
