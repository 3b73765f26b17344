package confirmloop

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/must"
)

// stuckHandler handles a batch until it is released.
type stuckHandler struct{ begun, release chan struct{} }

func newStuckHandler() stuckHandler {
	return stuckHandler{begun: make(chan struct{}, 1), release: make(chan struct{})}
}

func (stuckHandler) Permit(time.Time) delivery.Permit { return delivery.Proceed }
func (stuckHandler) Begin(delivery.Permit) int        { return 1 }
func (h stuckHandler) Work(*delivery.Batch)           { h.begun <- struct{}{}; <-h.release }
func (stuckHandler) End(*delivery.Batch) bool         { return false }

// withLock runs a test on a producer without lanes. The lock is held, so that no worker takes a batch meanwhile.
func withLock(t *testing.T, test func(c *Confirmer, p *producer)) {
	t.Helper()
	config := Config{CallsPerProducer: 4, QueuePerProducer: 2000, Batch: 200, limits: standardLimits()}
	c := &Confirmer{config: config, producers: map[string]*producer{}}
	c.mu.Lock()
	p := c.producer("orders")
	test(c, p)
	p.queue.Close()
	c.mu.Unlock()
	must.Succeed(t, c.work.Wait(t.Context()))
}

func order(l *lane) (ids []string) {
	for i := range l.queue.Len() {
		ids = append(ids, l.queue.At(i).ID)
	}
	return ids
}

func TestSharedFailureGoesBeforeLoneFailure(t *testing.T) {
	withLock(t, func(_ *Confirmer, p *producer) {
		l := p.lane(laneKey{use: quarantined})
		l.quarantine = quarantine{"failed": true, "fresh": false}
		for _, id := range []string{"failed", "fresh"} {
			name := halfmsg.Name{Producer: "orders", ID: id}
			l.push(&delivery.Leased{Claim: halfmsg.Claim{Message: halfmsg.Message{Name: name}}})
		}
		if got, want := order(l), []string{"fresh", "failed"}; !slices.Equal(got, want) {
			t.Errorf("the order is %v, want %v", got, want)
		}
	})
}

// The newest message is probably good: it came upon poison messages that were there before.
func TestNewestQuarantinedMessageGoesFirst(t *testing.T) {
	withLock(t, func(_ *Confirmer, p *producer) {
		l := p.lane(laneKey{use: quarantined})
		l.quarantine = quarantine{"failed": true}
		now := time.Now()
		for id, age := range map[string]time.Duration{
			"failed": 0, "old": time.Hour, "new": time.Second, "between": time.Minute,
		} {
			name := halfmsg.Name{Producer: "orders", ID: id}
			l.push(&delivery.Leased{Claim: halfmsg.Claim{Message: halfmsg.Message{Name: name}, CreatedAt: now.Add(-age)}})
		}
		if got, want := order(l), []string{"new", "between", "old", "failed"}; !slices.Equal(got, want) {
			t.Errorf("the order is %v, want %v", got, want)
		}
	})
}

func TestProducerIsDroppedWithLastLane(t *testing.T) {
	troubled := breaker{failures: 1}
	for what, c := range map[string]struct {
		// withLane has the producer know the lane, waiting and working say how far a batch of the lane is.
		withLane, waiting, working bool
		confirms                   breaker
		busyUntil                  time.Time
		dropped                    bool
	}{
		"idle":                      {dropped: true},
		"a call under way":          {working: true},
		"a batch about to be taken": {waiting: true},
		"a lane that remembers":     {withLane: true, confirms: troubled, busyUntil: time.Now()},
		"a lane that is idle":       {withLane: true, busyUntil: time.Now(), dropped: true},
		"a lane that has forgotten": {
			withLane: true, confirms: troubled, busyUntil: time.Now().Add(-laneMemory), dropped: true,
		},
		"a lane with a call": {withLane: true, working: true},
	} {
		withLock(t, func(all *Confirmer, p *producer) {
			handler := newStuckHandler()
			defer close(handler.release)
			l := &lane{producer: p, confirms: c.confirms, busyUntil: c.busyUntil, queue: p.queue.NewLane(handler, 1, 0)}
			if c.withLane {
				p.lanes[laneKey{}] = l
			}
			if c.waiting || c.working {
				l.queue.Push(&delivery.Leased{})
			}
			if c.working {
				all.mu.Unlock()
				<-handler.begun
				all.mu.Lock()
			}
			p.tidy()
			if dropped := len(all.producers) == 0; dropped != c.dropped {
				t.Errorf("%s: dropped %t, want %t", what, dropped, c.dropped)
			}
		})
	}
}

func TestQuarantineIsBounded(t *testing.T) {
	s := quarantine{}
	for i := range maxQuarantined + 10 {
		id := fmt.Sprint(i)
		s.add(id, i%2 == 0)
		s.add(id, false)
		if alone, known := s[id]; !known || alone != (i%2 == 0) {
			t.Fatalf("%s: known %t, failed alone %t", id, known, alone)
		}
	}
	if len(s) != maxQuarantined {
		t.Errorf("%d are remembered, want %d", len(s), maxQuarantined)
	}
}
