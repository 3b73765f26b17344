package orders

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/msghandler/msghandler/producer/marker"
)

// openMarkers is a marker store that knows which of its markers are still there, so that the demo can tell when the
// coordinator has learned the fate of every order.
type openMarkers struct {
	marker.Store

	mu   sync.Mutex
	open map[string]bool
}

// Put marks ids in the store beneath.
func (m *openMarkers) Put(ctx context.Context, ids []string, v marker.Verdict) (map[string]marker.Verdict, error) {
	m.mu.Lock()
	for _, id := range ids {
		m.open[id] = true
	}
	m.mu.Unlock()
	return m.Store.Put(ctx, ids, v)
}

// Delete forgets ids in the store beneath.
func (m *openMarkers) Delete(ctx context.Context, ids []string) error {
	if err := m.Store.Delete(ctx, ids); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		delete(m.open, id)
	}
	return nil
}

func (m *openMarkers) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open)
}

func (m *openMarkers) ids() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.open))
}
