package rabbitmq

import (
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// handOverEvery is how long outcomes are kept back for those that are still to come, so that a batch of which nothing
// takes long is handed over as one.
const handOverEvery = 250 * time.Millisecond

// outcomes gathers what became of a batch.
type outcomes struct {
	mu sync.Mutex
	// places and results are what was not handed over yet; missing is how many have no outcome.
	places  []int
	results []halfmsg.PublishResult
	missing int
	// complete is closed when none is missing.
	complete chan struct{}
}

func newOutcomes(n int) *outcomes {
	o := &outcomes{
		places: make([]int, 0, n), results: make([]halfmsg.PublishResult, 0, n), missing: n,
		complete: make(chan struct{}),
	}
	if n == 0 {
		close(o.complete)
	}
	return o
}

// add takes the outcome of the message at that place, once.
func (o *outcomes) add(place int, result halfmsg.PublishResult) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.places, o.results = append(o.places, place), append(o.results, result)
	if o.missing--; o.missing == 0 {
		close(o.complete)
	}
}

// take takes what was not handed over yet.
func (o *outcomes) take() (places []int, results []halfmsg.PublishResult) {
	o.mu.Lock()
	defer o.mu.Unlock()
	places, results = o.places, o.results
	o.places, o.results = nil, nil
	return places, results
}

// handOver hands all outcomes over as they come, and returns when none is missing. The first time it does so even if
// there is none: whoever waits for the rest shall not wait for these.
func (o *outcomes) handOver(answered func(places []int, results []halfmsg.PublishResult)) {
	tick := time.NewTicker(handOverEvery)
	defer tick.Stop()
	for first, complete := true, false; !complete; first = false {
		select {
		case <-o.complete:
			complete = true
		case <-tick.C:
		}
		if places, results := o.take(); first || len(places) > 0 {
			answered(places, results)
		}
	}
}
