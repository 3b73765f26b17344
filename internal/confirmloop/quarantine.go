package confirmloop

import (
	"errors"
	"sort"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// A producer may fail a Confirm batch because of one message in it. The messages of such a batch move to the target's
// quarantine: a queue of its own, from which Confirm calls ask about one message at first, and about twice as many
// after each answer. A message leaves the quarantine with its answer. A message that fails a call alone stays, and
// backs off. So messages that have failed no call are confirmed at once, and wait neither for the quarantine nor for
// its circuit breaker.
//
// Many poison messages may arrive at once and open the breaker of the normal queue before each has been in a call. New
// submits then take the bypass: a third queue, one message at a time, until the producer answers. A good message that
// shared a batch with poison messages does not wait behind all of them: the quarantine takes the newest first, and a
// failed call of another queue allows a few probes while the breaker of the quarantine is open.

const (
	// maxQuarantined bounds the ids that are remembered for a target, at about a megabyte with ids of the usual length.
	maxQuarantined = 10_000
	// quarantineFailures is how many quarantine calls in a row open the breaker, and quarantineRetries how many open it
	// again after a pause. Each call is about one message as a rule, and a good message may wait behind newer poison
	// messages.
	quarantineFailures, quarantineRetries = 12, 4
	// quarantineProbes is how many calls an open breaker allows after a failed call of another queue: for the newest
	// messages.
	quarantineProbes = 2
)

// quarantine holds the ids of quarantined messages, and whether a call about the message alone has failed. A message
// whose id was dropped fails another call and returns. A quarantine is not safe for concurrent use.
type quarantine map[string]bool

func (s quarantine) add(id string, alone bool) {
	if _, known := s[id]; !known && len(s) >= maxQuarantined {
		for other := range s { // whichever comes first
			delete(s, other)
			break
		}
	}
	s[id] = s[id] || alone
}

// newLane returns a lane of a producer.
func (c *Confirmer) newLane(p *producer, key laneKey) *lane {
	l := &lane{
		laneKey:  key,
		producer: p,
		target:   halfmsg.Target{Producer: p.name, Address: key.address},
		confirms: breaker{limit: c.config.limits.breakerFailures, pause: c.config.limits.breakerPause},
		deletes:  breaker{limit: c.config.limits.breakerFailures, pause: c.config.limits.breakerPause},
		batch:    c.config.Batch,
		parallel: c.config.CallsPerProducer,
		room:     c.config.QueuePerProducer,
		usedAt:   time.Now(),
	}
	switch key.use {
	case normal:
	case bypass:
		l.batch, l.parallel = 1, 1
	case quarantined:
		l.confirms.limit, l.confirms.tries = quarantineFailures, quarantineRetries
		l.batch = 1
		// There is a call for the others and room to wait, but where one is all there is.
		l.parallel = max(1, c.config.CallsPerProducer/2)
		l.room = max(1, c.config.QueuePerProducer/4)
		l.quarantine = quarantine{}
	}
	return l
}

// quarantine moves the messages of a failed call to the quarantine. Where the call had several, each is asked about
// again.
func (c *Confirmer) quarantine(l *lane, held []delivery.Leased, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.sibling(l, quarantined)
	to.usedAt = time.Now()
	for i := range held {
		to.quarantine.add(held[i].ID, len(held) == 1)
	}
	if len(held) == 1 {
		return
	}
	l.shrinkBatch()
	to.shrinkBatch()
	to.cause = delivery.CauseOf(err)
	if l != to {
		to.confirms.allowProbes(quarantineProbes)
	}
	for _, h := range held {
		c.push(to, h)
	}
	c.dispatch(l.producer)
}

// recordAnswer closes the breakers of a target that has answered, whichever queue the call came from, and lets the
// answered messages leave the quarantine. reopened says whether calls to the target were paused until now. c.mu is
// held.
func (c *Confirmer) recordAnswer(l *lane, held []delivery.Leased) (reopened bool) {
	for _, use := range []use{normal, quarantined, bypass} {
		other := l.producer.lanes[laneKey{l.address, l.committed, use}]
		if other == nil {
			continue
		}
		if other.confirms.succeed() && use == normal {
			reopened = true
		}
		if use == bypass {
			other.batch = c.config.Batch // as in the normal queue
		}
	}
	for i := range held {
		delete(l.quarantine, held[i].ID)
	}
	l.batch = min(2*l.batch, c.config.Batch)
	return reopened
}

// recordFailure counts a failed call in the breaker of its queue. A bypass call counts for the normal queue as well,
// where its messages belong; and so does each call that did not reach the target, because that says nothing about a
// message. opened reports whether the breaker of the normal queue, which stands for the target, has opened now. c.mu is
// held.
func (c *Confirmer) recordFailure(l *lane, err error) (opened bool) {
	reached := errors.Is(err, halfmsg.ErrCallFailed)
	if l.use != normal && !reached {
		l.confirms.tripOnNextFailure()
	}
	lanes := []*lane{l}
	if l.use == bypass || (l.use == quarantined && !reached) {
		lanes = append(lanes, c.sibling(l, normal))
	}
	for _, l := range lanes {
		l.cause, l.reached, l.usedAt = delivery.CauseOf(err), reached, time.Now()
		opened = l.confirms.fail(l.usedAt) && l.use == normal
	}
	return opened
}

// sibling returns another queue of the same target, which need not exist yet. c.mu is held.
func (c *Confirmer) sibling(l *lane, use use) *lane {
	return c.laneOf(l.producer, laneKey{l.address, l.committed, use})
}

// useFor returns the queue for a message to be confirmed. c.mu is held.
func (p *producer) useFor(h delivery.Leased) use {
	if others := p.lanes[laneKey{h.CallbackTarget, false, quarantined}]; others != nil {
		if _, listed := others.quarantine[h.ID]; listed {
			return quarantined
		}
	}
	others := p.lanes[laneKey{h.CallbackTarget, false, normal}]
	if !h.Backlog && others != nil && others.reached && others.confirms.failures > 0 {
		return bypass
	}
	return normal
}

// insertionPoint is the place of a message in the quarantine: before older messages, and before messages that failed
// alone.
func (l *lane) insertionPoint(h delivery.Leased) int {
	if l.quarantine[h.ID] {
		return len(l.queue)
	}
	return sort.Search(len(l.queue), func(i int) bool {
		return l.quarantine[l.queue[i].ID] || !l.queue[i].CreatedAt.After(h.CreatedAt)
	})
}

// shrinkBatch lets the batches of a quarantine or bypass begin with one message again.
func (l *lane) shrinkBatch() {
	if l.use != normal {
		l.batch = 1
	}
}
