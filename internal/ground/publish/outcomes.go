package publish

import (
	"sync"
	"time"
)

// HandOverEvery is how long outcomes wait for later outcomes of the batch, so that a batch without slow messages is
// handed over as a whole.
const HandOverEvery = 250 * time.Millisecond

// outcomes gathers the outcomes of a batch for the caller of Publish.
type outcomes struct {
	mu sync.Mutex
	// places and results are the outcomes that were not handed over yet; missing counts messages without an outcome.
	places  []int
	results []Result
	missing int
	// complete is closed when no outcome is missing.
	complete chan struct{}
}

// newOutcomes is for a batch of n messages.
func newOutcomes(n int) *outcomes {
	o := &outcomes{
		places: make([]int, 0, n), results: make([]Result, 0, n), missing: n, complete: make(chan struct{}),
	}
	if n == 0 {
		close(o.complete)
	}
	return o
}

// add takes the outcome of the message at a place, once for each place.
func (o *outcomes) add(place int, result Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.places, o.results = append(o.places, place), append(o.results, result)
	if o.missing--; o.missing == 0 {
		close(o.complete)
	}
}

// remove gives the outcomes that were not handed over yet.
func (o *outcomes) remove() (places []int, results []Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	places, results = o.places, o.results
	o.places, o.results = nil, nil
	return places, results
}

// handOver hands over all outcomes as they come, and returns when no outcome is missing. The first group may be
// empty: the caller learns in time that the rest takes longer.
func (o *outcomes) handOver(answered func(places []int, results []Result)) {
	tick := time.NewTicker(HandOverEvery)
	defer tick.Stop()
	for first, complete := true, false; !complete; first = false {
		select {
		case <-o.complete:
			complete = true
		case <-tick.C:
		}
		if places, results := o.remove(); first || len(places) > 0 {
			answered(places, results)
		}
	}
}
