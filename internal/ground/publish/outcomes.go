package publish

import (
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
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
	// settled says of each place whether there is an outcome.
	settled []bool
	// complete is closed when no outcome is missing, or none follows after a failure.
	complete chan struct{}
	failure  *lifecycle.PanicError
	ended    bool
}

// newOutcomes is for a batch of n messages.
func newOutcomes(n int) *outcomes {
	o := &outcomes{
		places: make([]int, 0, n), results: make([]Result, 0, n), missing: n, complete: make(chan struct{}),
		settled: make([]bool, n),
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
	if o.ended {
		return
	}
	o.places, o.results, o.settled[place] = append(o.places, place), append(o.results, result), true
	if o.missing--; o.missing == 0 {
		close(o.complete)
	}
}

// fail records the first panic, and says whether it was the first one.
func (o *outcomes) fail(failure *lifecycle.PanicError) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failure != nil {
		return false
	}
	o.failure = failure
	return true
}

// end takes no further outcomes.
func (o *outcomes) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended = true; o.missing > 0 {
		close(o.complete)
	}
}

// failed gives the panic, if there was one, and the places without an outcome.
func (o *outcomes) failed() (failure *lifecycle.PanicError, missing []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for place, settled := range o.settled {
		if !settled {
			missing = append(missing, place)
		}
	}
	return o.failure, missing
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
