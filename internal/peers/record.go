package peers

import (
	"context"
	"slices"
	"sync"
	"time"
)

// record is what this coordinator has read of the record of ended problems. Pages ask for the record again and again:
// the store is asked once after each exchange, and only for what is new. The zero value has read nothing.
type record struct {
	mu    sync.Mutex
	store Store
	// fresh says that no exchange has passed since the last read.
	fresh bool
	// entries are those read, and newest is when the last of them was written.
	entries []readEntry
	newest  time.Time
}

type readEntry struct {
	Recorded
	problem Problem
	// readable is false of an entry that another version wrote.
	readable bool
}

// outdate lets the next read ask the store.
func (r *record) outdate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fresh = false
}

// read lists the problems of the record. Errors are the store's.
func (r *record) read(ctx context.Context, store Store, now time.Time) (all []Problem, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store != store {
		r.store, r.fresh, r.entries, r.newest = store, false, nil, now.Add(-EndedMemory)
	}
	if !r.fresh {
		if err := r.readNew(ctx, now); err != nil {
			return nil, err
		}
	}
	for i := range r.entries {
		if r.entries[i].readable {
			all = append(all, r.entries[i].problem)
		}
	}
	return all, nil
}

// readNew reads the entries that were written since the last read. Those of one millisecond may be known in part.
func (r *record) readNew(ctx context.Context, now time.Time) error {
	entries, err := r.store.ReadEnded(ctx, r.newest)
	if err != nil {
		return err
	}
	known := map[Recorded]bool{}
	for i := range r.entries {
		known[r.entries[i].Recorded] = true
	}
	for _, e := range entries {
		if known[e] {
			continue
		}
		ended, err := e.read()
		r.entries = append(r.entries, readEntry{e, ended, err == nil})
		if e.At.After(r.newest) {
			r.newest = e.At
		}
	}
	slices.SortStableFunc(r.entries, func(a, b readEntry) int { return b.At.Compare(a.At) })
	r.entries = slices.DeleteFunc(r.entries[:min(len(r.entries), MaxEnded)], func(e readEntry) bool {
		return now.Sub(e.At) > EndedMemory
	})
	r.fresh = true
	return nil
}
