package producer

import (
	"context"
	"sync"

	"github.com/msghandler/msghandler/producer/marker"
)

// inflight is what this process knows about ids that have no marker yet: whose half message is being stored, whose
// business is running, or whose business has committed while the marker could not be stored.
type inflight struct {
	mu      sync.Mutex
	ids     map[string]*flight
	kept    int
	maxKept int
}

// flight is one id. A flight without a holder is dropped.
type flight struct {
	// storing counts the calls that are handing the half message to the coordinator. Their business has not begun.
	storing int
	// running: a Send is between its marker lookup and its own marker.
	running bool
	// committed: the business committed and the marker is still to be stored.
	committed bool
	// asking counts the Confirm calls that are finding the id's verdict. A Send waits for them, so that no verdict was
	// found before the business and is given after the business.
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
	if f.storing == 0 && !f.running && !f.committed && f.asking == 0 {
		delete(in.ids, id)
	}
}

// begin takes an id for a Send and returns the verdict if one is known already. begin fails with ErrInFlight when
// another Send has the id, and waits until Confirm calls about the id or the context end.
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

// store notes that the half message of an id is being stored, until stored is called.
func (in *inflight) store(id string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.get(id).storing++
}

// stored notes that the call has ended, with any outcome.
func (in *inflight) stored(id string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	f := in.ids[id]
	f.storing--
	in.drop(id, f)
}

// keep remembers a committed id until the marker is stored. At maxKept ids, keep returns false.
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

// forget drops ids that keep has remembered: their markers are stored, or not needed any more.
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

// question sorts the ids of a Confirm by their place in this process. All ids are in known, Unknown at first.
type question struct {
	known map[string]marker.Verdict
	// open: the verdict is to be found. These ids must be handed to asked in the end.
	open []string
	// running: a Send holds the id, and only a commit of an earlier run can be reported.
	running []string
	// storing: the half message is being stored. Again only a commit of an earlier run can be reported.
	storing []string
}

// questionAbout sorts the ids of a Confirm. Where stores can make a running business fail (barrier) its id is open.
func (in *inflight) questionAbout(ids []string, barrier bool) question {
	in.mu.Lock()
	defer in.mu.Unlock()
	q := question{known: make(map[string]marker.Verdict, len(ids))}
	for _, id := range ids {
		if _, repeated := q.known[id]; repeated {
			continue
		}
		f := in.ids[id]
		q.known[id] = marker.Unknown
		switch {
		case f != nil && f.committed:
			q.known[id] = marker.Committed
		case f != nil && f.storing > 0:
			q.storing = append(q.storing, id)
		case f != nil && f.running && !barrier:
			q.running = append(q.running, id)
		default:
			in.get(id).asking++
			q.open = append(q.open, id)
		}
	}
	return q
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
