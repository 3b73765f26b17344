// Package outcomes gathers the outcomes of a batch and hands them to the caller of Publish, as halfmsg.Publisher asks
// for it. The publishers of all brokers share the package.
package outcomes

import (
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Acked is the result of a message that the broker has stored.
func Acked() halfmsg.PublishResult {
	return halfmsg.PublishResult{Outcome: halfmsg.Acked}
}

// Refused is the result of a message that the broker does not take.
func Refused(cause error) halfmsg.PublishResult {
	return halfmsg.PublishResult{Outcome: halfmsg.Refused, Cause: cause}
}

// Unsure is the result of a message that the broker may have stored.
func Unsure(cause error) halfmsg.PublishResult {
	return halfmsg.PublishResult{Outcome: halfmsg.Unsure, Cause: cause}
}

// Unsent is the result of a message that the broker did not get.
func Unsent(cause error) halfmsg.PublishResult {
	return halfmsg.PublishResult{Outcome: halfmsg.Unsent, Cause: cause}
}

// HandOverEvery is how long outcomes wait for later outcomes of the batch, so that a batch without slow messages is
// handed over as a whole.
const HandOverEvery = 250 * time.Millisecond

// Batch gathers the outcomes of a batch. Add is safe for concurrent use.
type Batch struct {
	mu sync.Mutex
	// places and results are the outcomes that were not handed over yet; missing counts messages without an outcome.
	places  []int
	results []halfmsg.PublishResult
	missing int
	// complete is closed when no outcome is missing.
	complete chan struct{}
}

// New returns a batch of n messages without outcomes.
func New(n int) *Batch {
	b := &Batch{
		places: make([]int, 0, n), results: make([]halfmsg.PublishResult, 0, n), missing: n,
		complete: make(chan struct{}),
	}
	if n == 0 {
		close(b.complete)
	}
	return b
}

// Add takes the outcome of the message at a place, once for each place.
func (b *Batch) Add(place int, result halfmsg.PublishResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.places, b.results = append(b.places, place), append(b.results, result)
	if b.missing--; b.missing == 0 {
		close(b.complete)
	}
}

// take removes the outcomes that were not handed over yet.
func (b *Batch) take() (places []int, results []halfmsg.PublishResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	places, results = b.places, b.results
	b.places, b.results = nil, nil
	return places, results
}

// HandOver hands over all outcomes as they come, and returns when no outcome is missing. The first group may be
// empty: the caller learns in time that the rest takes longer.
func (b *Batch) HandOver(answered func(places []int, results []halfmsg.PublishResult)) {
	tick := time.NewTicker(HandOverEvery)
	defer tick.Stop()
	for first, complete := true, false; !complete; first = false {
		select {
		case <-b.complete:
			complete = true
		case <-tick.C:
		}
		if places, results := b.take(); first || len(places) > 0 {
			answered(places, results)
		}
	}
}
