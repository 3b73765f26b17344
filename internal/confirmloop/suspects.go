package confirmloop

import (
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/halfmsg/owner"
)

// Where a producer fails a call, a single message of it may be the reason. Those of the call become suspects: they go over
// to a lane of their own, the doubtful one of the target, and are asked about there one by one, and by larger and larger
// batches as they are answered. What has an answer is no suspect any more; what fails the call by itself stays one and is
// asked about less and less. So what the producer has not failed for yet is asked about at once, and waits neither for the
// suspects nor for the breaker that they open.

const (
	// maxSuspects is how many suspects of a target are remembered, with ids of the usual length in a megabyte.
	maxSuspects = 10_000
	// suspectsInARow is how many calls about suspects may fail in a row before they are left alone for a while, and
	// suspectsAgain how many after that. Each is about one message as a rule, and an order that shared a call with them may
	// stand behind some.
	suspectsInARow, suspectsAgain = 12, 4
)

// suspects are the messages that belong into a doubtful lane, by their ids, and whether the call about each by itself has
// failed. One that was forgotten fails a call once more, and is one of them again. It is not safe for concurrent use.
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
	if key.doubtful {
		l.confirms.limit, l.confirms.tries = suspectsInARow, suspectsAgain
		l.batch = 1
		// There is a call for the others and room to wait, but where one is all there is.
		l.parallel = max(1, c.config.CallsPerProducer/2)
		l.room = max(1, c.config.QueuePerProducer/4)
		l.suspects = suspects{}
	}
	return l
}

// suspect takes messages of a call that the producer has failed for suspects. Where there are several they are asked about
// again, one by one.
func (c *Confirmer) suspect(l *lane, held []owner.Held, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.laneOf(l.producer, laneKey{address: l.address, trusted: l.trusted, doubtful: true})
	to.usedAt = time.Now()
	for i := range held {
		to.suspects.add(held[i].ID, len(held) == 1)
	}
	if len(held) == 1 {
		return
	}
	to.batch = 1
	to.cause = owner.CauseOf(err)
	for _, h := range held {
		c.push(to, h)
	}
	c.dispatch(l.producer)
}

// heard notes that a producer has answered about messages: its target can be reached, whichever lane found that out. It
// says whether the target was left alone until now. c.mu is held.
func (c *Confirmer) heard(l *lane, held []owner.Held) (reopened bool) {
	for _, doubtful := range []bool{false, true} {
		other := l.producer.lanes[laneKey{address: l.address, trusted: l.trusted, doubtful: doubtful}]
		if other != nil && other.confirms.succeed() && !other.doubtful {
			reopened = true
		}
	}
	if l.doubtful {
		for i := range held {
			delete(l.suspects, held[i].ID)
		}
		l.batch = min(2*l.batch, c.config.Batch)
	}
	return reopened
}
