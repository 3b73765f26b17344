package peers

import (
	"context"
	"slices"
	"sync"
	"time"
)

// record is what this coordinator has read of the record of ended problems. Pages ask for the record again and again:
// the store is asked once after each exchange, and only for what is new. While a page waits for the store, the others
// and the exchange do not.
type record struct {
	// reading has the reader that asks the store.
	reading chan struct{}

	mu    sync.Mutex
	store Store
	// exchanges counts those of this coordinator, and read those that the last read has followed.
	exchanges, read int
	// entries are those read, and newest is when the last of them was written.
	entries []readEntry
	newest  time.Time
}

func newRecord() *record { return &record{reading: make(chan struct{}, 1), read: -1} }

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
	r.exchanges++
}

// problems lists the problems of the record. Errors are the store's, or that of the context.
func (r *record) problems(ctx context.Context, store Store, now time.Time) (all []Problem, err error) {
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if since, exchanges, due := r.due(store, now); due {
		entries, err := store.ReadEnded(ctx, since)
		if err != nil {
			return nil, err
		}
		r.add(entries, exchanges, now)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.entries {
		if r.entries[i].readable {
			all = append(all, r.entries[i].problem)
		}
	}
	return all, nil
}

// due says whether the store is to be asked, and since when. Another store begins anew.
func (r *record) due(store Store, now time.Time) (since time.Time, exchanges int, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store != store {
		r.store, r.read, r.entries, r.newest = store, -1, nil, now.Add(-EndedMemory)
	}
	return r.newest, r.exchanges, r.read != r.exchanges
}

// add adds the entries that were read after so many exchanges. Those of one millisecond may be known in part.
func (r *record) add(entries []Recorded, exchanges int, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
	r.read = exchanges
}
