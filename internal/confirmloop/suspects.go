package confirmloop

import (
	"errors"
	"sort"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Where a producer fails a call, a single message of it may be the reason. Those of the call become suspects: they go
// over to a lane of their own, the doubtful one of the target, and are asked about there one by one, and by larger and
// larger batches as they are answered. What has an answer is no suspect any more; what fails the call by itself stays
// one and is asked about less and less. So what the producer has not failed for yet is asked about at once, and waits
// neither for the suspects nor for the breaker that they open.
//
// Many of them may come at once, and the usual lane is left alone before each has been in a call. What is submitted
// then is asked about in a third lane, apart from those that come back: by itself, until the producer answers. And what
// has shared a call with some all the same does not stand behind them, however many they are: the newest suspects are
// tried first, and some of a call that has just failed at once, also while the others are left alone.

const (
	// maxSuspects is how many suspects of a target are remembered, with ids of the usual length in a megabyte.
	maxSuspects = 10_000
	// suspectsInARow is how many calls about suspects may fail in a row before they are left alone for a while, and
	// suspectsAgain how many after that. Each is about one message as a rule, and an order that shared a call with them
	// may stand behind some that came after it.
	suspectsInARow, suspectsAgain = 12, 4
	// suspectsLent is how many may be asked about meanwhile when a call of another lane has failed: its newest.
	suspectsLent = 2
)

// suspects are the messages that belong into a doubtful lane, by their ids, and whether the call about each by itself
// has failed. One that was forgotten fails a call once more, and is one of them again. It is not safe for concurrent
// use.
type suspects map[string]bool

func (s suspects) add(id string, alone bool) {
	if _, known := s[id]; !known && len(s) >= maxSuspects {
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
		confirms: breaker{limit: c.config.BreakerFailures, pause: c.config.BreakerPause},
		deletes:  breaker{limit: c.config.BreakerFailures, pause: c.config.BreakerPause},
		batch:    c.config.Batch,
		parallel: c.config.CallsPerProducer,
		room:     c.config.QueuePerProducer,
		usedAt:   time.Now(),
	}
	switch key.use {
	case usual:
	case apart:
		l.batch, l.parallel = 1, 1
	case doubtful:
		l.confirms.limit, l.confirms.tries = suspectsInARow, suspectsAgain
		l.batch = 1
		// There is a call for the others and room to wait, but where one is all there is.
		l.parallel = max(1, c.config.CallsPerProducer/2)
		l.room = max(1, c.config.QueuePerProducer/4)
		l.suspects = suspects{}
	}
	return l
}

// suspect takes messages of a call that the producer has failed for suspects. Where there are several they are asked
// about again, one by one.
func (c *Confirmer) suspect(l *lane, held []delivery.Leased, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.sibling(l, doubtful)
	to.usedAt = time.Now()
	for i := range held {
		to.suspects.add(held[i].ID, len(held) == 1)
	}
	if len(held) == 1 {
		return
	}
	l.restart()
	to.restart()
	to.cause = delivery.CauseOf(err)
	if l != to {
		to.confirms.lend(suspectsLent)
	}
	for _, h := range held {
		c.push(to, h)
	}
	c.dispatch(l.producer)
}

// heard notes that a producer has answered about messages: its target can be reached, whichever lane found that out. It
// says whether the target was left alone until now. c.mu is held.
func (c *Confirmer) heard(l *lane, held []delivery.Leased) (reopened bool) {
	for _, use := range []use{usual, doubtful, apart} {
		other := l.producer.lanes[laneKey{l.address, l.committed, use}]
		if other == nil {
			continue
		}
		if other.confirms.succeed() && use == usual {
			reopened = true
		}
		if use == apart {
			other.batch = c.config.Batch // as it would be in the usual lane
		}
	}
	for i := range held {
		delete(l.suspects, held[i].ID)
	}
	l.batch = min(2*l.batch, c.config.Batch)
	return reopened
}

// blame tells breakers of a call that has failed. What was asked about apart counts for the usual lane as well, where
// it would have been asked about otherwise; and so does, of whichever lane, that the target could not be reached: it is
// no word about a suspect. The breaker of the usual lane says to people that the producer is left alone. opened says
// that it is from now on. c.mu is held.
func (c *Confirmer) blame(l *lane, err error) (opened bool) {
	reached := errors.Is(err, halfmsg.ErrCallFailed)
	if l.use != usual && !reached {
		l.confirms.last()
	}
	lanes := []*lane{l}
	if l.use == apart || (l.use == doubtful && !reached) {
		lanes = append(lanes, c.sibling(l, usual))
	}
	for _, l := range lanes {
		l.cause, l.reached, l.usedAt = delivery.CauseOf(err), reached, time.Now()
		opened = l.confirms.fail(l.usedAt) && l.use == usual
	}
	return opened
}

// sibling is another lane of the same target, which need not have been there. c.mu is held.
func (c *Confirmer) sibling(l *lane, use use) *lane {
	return c.laneOf(l.producer, laneKey{l.address, l.committed, use})
}

// useFor says which lane a message that is to be asked about belongs into. c.mu is held.
func (p *producer) useFor(h delivery.Leased) use {
	if others := p.lanes[laneKey{h.CallbackTarget, false, doubtful}]; others != nil {
		if _, suspect := others.suspects[h.ID]; suspect {
			return doubtful
		}
	}
	others := p.lanes[laneKey{h.CallbackTarget, false, usual}]
	if !h.Backlog && others != nil && others.reached && others.confirms.failures > 0 {
		return apart
	}
	return usual
}

// place is where a suspect stands in its lane: before older ones, and before all that were asked about by themselves
// already.
func (l *lane) place(h delivery.Leased) int {
	if l.suspects[h.ID] {
		return len(l.queue)
	}
	return sort.Search(len(l.queue), func(i int) bool {
		return l.suspects[l.queue[i].ID] || !l.queue[i].CreatedAt.After(h.CreatedAt)
	})
}

// restart has a lane whose batches grow begin with one message again.
func (l *lane) restart() {
	if l.use != usual {
		l.batch = 1
	}
}
