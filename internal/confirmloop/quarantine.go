package confirmloop

import (
	"sort"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
)

// A producer may fail a Confirm batch because of one message in it. The messages of such a batch move to the target's
// quarantine: a lane of its own, from which Confirm calls ask about one message at first, and about twice as many
// after each answer. A message leaves the quarantine with its answer. A message that fails a call alone stays, and
// backs off. So messages that have failed no call are confirmed at once, and wait neither for the quarantine nor for
// its circuit breaker.
//
// Many poison messages may arrive at once and open the breaker of the normal lane before each has been in a call. New
// submits then take the bypass: a third lane, one message at a time, until the producer answers. A good message that
// shared a batch with poison messages does not wait behind all of them: the quarantine takes the newest first, and a
// failed call of another lane allows a few probes while the breaker of the quarantine is open.

const (
	// maxQuarantined bounds the ids that are remembered for a target, at about a megabyte with ids of the usual length.
	maxQuarantined = 10_000
	// quarantineFailures is how many quarantine calls in a row open the breaker, and quarantineRetries how many open it
	// again after a pause. Each call is about one message as a rule, and a good message may wait behind newer poison
	// messages.
	quarantineFailures, quarantineRetries = 12, 4
	// quarantineProbes is how many calls an open breaker allows after a failed call of another lane: for the newest
	// messages.
	quarantineProbes = 2
)

// quarantine holds the ids of quarantined messages, and whether a call about the message alone has failed. A message
// whose id was dropped fails another call and returns. A quarantine is not safe for concurrent use.
type quarantine map[string]bool

func (q quarantine) add(id string, alone bool) {
	if _, known := q[id]; !known && len(q) >= maxQuarantined {
		for other := range q { // any id
			delete(q, other)
			break
		}
	}
	q[id] = q[id] || alone
}

// isolate moves the messages of a failed call to the quarantine. Where the call had several, each is asked about again.
func (l *lane) isolate(held []delivery.Leased, err error) {
	c := l.producer.confirmer
	c.mu.Lock()
	to := l.sibling(quarantined)
	to.busy(time.Now())
	for i := range held {
		to.quarantine.add(held[i].ID, len(held) == 1)
	}
	if len(held) == 1 {
		c.mu.Unlock()
		return
	}
	l.shrinkBatch()
	to.shrinkBatch()
	to.cause = delivery.CauseOf(err)
	if l != to {
		to.confirms.allowProbes(quarantineProbes)
	}
	closing := c.closing
	if !closing {
		for i := range held {
			to.push(&held[i])
		}
	}
	c.mu.Unlock()
	if closing {
		c.handBack(held)
	}
}

// useFor returns the purpose of the lane for a message to be confirmed. c.mu is held.
func (p *producer) useFor(h *delivery.Leased) use {
	if others := p.lanes[laneKey{targetOf(&h.Claim), false, quarantined}]; others != nil {
		if _, listed := others.quarantine[h.ID]; listed {
			return quarantined
		}
	}
	others := p.lanes[laneKey{targetOf(&h.Claim), false, normal}]
	if !h.Backlog && others != nil && others.reached && others.confirms.failures > 0 {
		return bypass
	}
	return normal
}

// insertionPoint is the place of a message in the quarantine: before older messages, and before messages that failed
// alone.
func (l *lane) insertionPoint(h *delivery.Leased) int {
	if l.quarantine[h.ID] {
		return l.queue.Len()
	}
	return sort.Search(l.queue.Len(), func(i int) bool {
		other := l.queue.At(i)
		return l.quarantine[other.ID] || !other.CreatedAt.After(h.CreatedAt)
	})
}

// shrinkBatch lets the batches of a quarantine or bypass begin with one message again.
func (l *lane) shrinkBatch() {
	if l.use != normal {
		l.batch = 1
	}
}
