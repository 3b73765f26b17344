package sendloop_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/pacing"
	"github.com/msghandler/msghandler/internal/sendloop"
	memstore "github.com/msghandler/msghandler/internal/store/memory"
)

// maxYield is how long the backlog yields at most.
const maxYield = 2 * time.Second

// published records the batches that go to a broker, which answers at once after the gate is closed.
type published struct {
	gate chan struct{}

	mu      sync.Mutex
	batches [][]halfmsg.Publishing
}

func (p *published) to(batch []halfmsg.Publishing, answered func([]int, []halfmsg.PublishResult)) {
	p.mu.Lock()
	p.batches = append(p.batches, slices.Clone(batch))
	p.mu.Unlock()
	<-p.gate
	hand(batch, "", halfmsg.Acked, answered)
}

// take returns the batches since the last call.
func (p *published) take() (batches [][]halfmsg.Publishing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	batches, p.batches = p.batches, nil
	return batches
}

func isFresh(batch []halfmsg.Publishing) bool { return strings.HasPrefix(batch[0].Name.ID, "fresh") }

func prefixed(prefix string, n int) (ids []string) {
	for _, id := range numbered(n) {
		ids = append(ids, prefix+id)
	}
	return ids
}

// An outage leaves a backlog that comes in portions, each worked off before the next: one backlog, not many.
func TestEndlessBacklogStopsYielding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &published{gate: make(chan struct{})}
		close(p.gate)
		h := with(t, sendloop.Config{Batch: 100}, p.to, func(s *memstore.Store) halfmsg.SendStore { return s })
		portions := 0
		portion := func() (largest int) {
			portions++
			h.offer(fmt.Sprint("fresh ", portions))
			synctest.Wait()
			h.waiting(prefixed(fmt.Sprint("backlog ", portions, " "), 100)...)
			h.pass()
			for _, batch := range p.take() {
				if !isFresh(batch) {
					largest = max(largest, len(batch))
				}
			}
			return largest
		}
		for begun := time.Now(); time.Since(begun) < maxYield; time.Sleep(pacing.IdleGap) {
			if got := portion(); got != 10 {
				t.Errorf("after %v the backlog fills a batch of %d, want a share of 10", time.Since(begun), got)
			}
		}
		if got := portion(); got != 100 {
			t.Errorf("after %v the backlog fills a batch of %d, want 100", maxYield, got)
		}
		time.Sleep(pacing.IdleGap + time.Nanosecond)
		if got := portion(); got != 10 {
			t.Errorf("another backlog fills a batch of %d, want a share of 10", got)
		}
	})
}

// A backlog that has yielded for long enough has each second batch, however much fresh traffic there is.
func TestYieldedBacklogHasEachSecondBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &published{gate: make(chan struct{})}
		h := with(t, sendloop.Config{Parallel: 1, Batch: 10}, p.to, func(s *memstore.Store) halfmsg.SendStore { return s })
		h.waiting("first")
		h.pass()
		h.waiting(prefixed("backlog ", 100)...)
		h.pass()
		time.Sleep(maxYield)
		h.offer(prefixed("fresh ", 100)...)
		p.take()
		close(p.gate)
		synctest.Wait()
		var ofBacklog []bool
		for _, batch := range p.take()[:6] {
			if len(batch) != 10 {
				t.Fatalf("a batch of %d", len(batch))
			}
			ofBacklog = append(ofBacklog, !isFresh(batch))
		}
		if want := []bool{false, true, false, true, false, true}; !slices.Equal(ofBacklog, want) {
			t.Errorf("batches of the backlog: %v, want %v", ofBacklog, want)
		}
	})
}
