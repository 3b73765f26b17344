// Package memory remembers handled messages in this process: for trials, and for consumers that can accept a loss at
// a restart and copies in other processes.
package memory

import (
	"container/list"
	"context"
	"sync"

	"github.com/msghandler/msghandler/consumer/dedup"
)

// Store is a dedup.Store that keeps the last handled messages. A message stays Busy until Done or Release.
type Store struct {
	capacity int

	mu   sync.Mutex
	busy map[string]struct{}
	done map[string]*list.Element
	// order holds the keys of done, the most recently used key in front.
	order *list.List
}

var _ dedup.Store = (*Store)(nil)

// New returns a store that remembers the last capacity messages handled or asked for, but at least one message.
// 100,000 messages with keys of 20 bytes take about 20 MB.
func New(capacity int) *Store {
	return &Store{
		capacity: max(1, capacity), busy: map[string]struct{}{}, done: map[string]*list.Element{}, order: list.New(),
	}
}

// Begin implements dedup.Store.
func (s *Store) Begin(ctx context.Context, key string) (dedup.Status, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if element, ok := s.done[key]; ok {
		s.order.MoveToFront(element)
		return dedup.Done, nil
	}
	if _, ok := s.busy[key]; ok {
		return dedup.Busy, nil
	}
	s.busy[key] = struct{}{}
	return dedup.New, nil
}

// Done implements dedup.Store.
func (s *Store) Done(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, key)
	if element, ok := s.done[key]; ok {
		s.order.MoveToFront(element)
		return nil
	}
	s.done[key] = s.order.PushFront(key)
	if len(s.done) > s.capacity {
		delete(s.done, s.order.Remove(s.order.Back()).(string))
	}
	return nil
}

// Release implements dedup.Store.
func (s *Store) Release(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, key)
	return nil
}
