package producer

import (
	"context"
	"sync"

	"github.com/msghandler/msghandler/producer/marker"
)

// inflight is what this process knows about ids that no marker can tell yet: whose business is running, and whose
// business has committed though its marker could not be stored.
type inflight struct {
	mu      sync.Mutex
	ids     map[string]*flight
	kept    int
	maxKept int
}

// flight is one id. It is dropped when nothing holds it any more.
type flight struct {
	// running: a Send is between its look at the markers and the marker it leaves.
	running bool
	// committed: the business committed and the marker is still to be stored.
	committed bool
	// asking counts the Confirm calls that are finding the id's verdict. A Send waits for them, so that no verdict of
	// theirs was found before its business and given after it.
	asking int
	idle   chan struct{}
}

func newInflight(maxKept int) *inflight {
	return &inflight{ids: make(map[string]*flight), maxKept: maxKept}
}

func (in *inflight) get(id string) *flight {
	f := in.ids[id]
	if f == nil {
		f = &flight{}
		in.ids[id] = f
	}
	return f
}

func (in *inflight) drop(id string, f *flight) {
	if !f.running && !f.committed && f.asking == 0 {
		delete(in.ids, id)
	}
}

// begin takes an id for a Send and returns what is known of it already. It fails with ErrInFlight when another Send has
// it, and waits for Confirm calls about it to end, or for the context.
func (in *inflight) begin(ctx context.Context, id string) (marker.Verdict, error) {
	for {
		verdict, wait, err := in.tryBegin(id)
		if wait == nil {
			return verdict, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return marker.Unknown, ctx.Err()
		}
	}
}

func (in *inflight) tryBegin(id string) (marker.Verdict, <-chan struct{}, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	f := in.get(id)
	switch {
	case f.running:
		return marker.Unknown, nil, ErrInFlight
	case f.asking > 0:
		if f.idle == nil {
			f.idle = make(chan struct{})
		}
		return marker.Unknown, f.idle, nil
	}
	f.running = true
	if f.committed {
		return marker.Committed, nil, nil
	}
	return marker.Unknown, nil, nil
}

// end gives the id of a Send back.
func (in *inflight) end(id string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if f := in.ids[id]; f != nil {
		f.running = false
		in.drop(id, f)
	}
}

// keep remembers that an id committed until its marker is stored. It says no when it remembers as many as it may.
func (in *inflight) keep(id string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	f := in.get(id)
	if f.committed {
		return true
	}
	if in.kept >= in.maxKept {
		in.drop(id, f)
		return false
	}
	in.kept++
	f.committed = true
	return true
}

// keeps says whether the id's marker is still to be stored.
func (in *inflight) keeps(id string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	f := in.ids[id]
	return f != nil && f.committed
}

// forget drops what keep remembered: the markers are stored, or not needed any more.
func (in *inflight) forget(ids ...string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, id := range ids {
		if f := in.ids[id]; f != nil && f.committed {
			f.committed = false
			in.kept--
			in.drop(id, f)
		}
	}
}

// ask splits the ids of a Confirm into those with a verdict known here, those whose verdict is to be found, which must be
// handed to asked in the end, and those that a Send has now. Of the last only a commit of an earlier run can be told.
// Where stores can make a running business fail (barrier) they count among those that are to be found.
func (in *inflight) ask(ids []string, barrier bool) (known map[string]marker.Verdict, open, running []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	known = make(map[string]marker.Verdict, len(ids))
	for _, id := range ids {
		if _, repeated := known[id]; repeated {
			continue
		}
		f := in.get(id)
		known[id] = marker.Unknown
		switch {
		case f.committed:
			known[id] = marker.Committed
		case f.running && !barrier:
			running = append(running, id)
		default:
			f.asking++
			open = append(open, id)
		}
	}
	return known, open, running
}

func (in *inflight) asked(open []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, id := range open {
		f := in.ids[id]
		f.asking--
		if f.asking == 0 && f.idle != nil {
			close(f.idle)
			f.idle = nil
		}
		in.drop(id, f)
	}
}
