package confirmloop

import (
	"errors"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// producer has the messages that wait for one producer. Confirmer.mu guards the producer and its lanes.
type producer struct {
	name      string
	confirmer *Confirmer
	queue     *delivery.WorkQueue
	lanes     map[laneKey]*lane
	// stored says that the store has messages of the producer, and answeredAt when the producer last answered any
	// coordinator, as the last pass has learned. Of severalTargets it is not known which one answered.
	stored         bool
	answeredAt     time.Time
	severalTargets bool
}

// laneKey tells a producer's lanes apart: by target, by purpose, and whether their messages are committed already.
type laneKey struct {
	target    halfmsg.Target
	committed bool
	use       use
}

// use is the purpose of a lane.
type use uint8

const (
	// normal: messages that are in no other lane.
	normal use = iota
	// quarantined: messages of failed calls (quarantine.go).
	quarantined
	// bypass: messages submitted while the calls of the normal lane fail (quarantine.go).
	bypass
)

// lane has the messages of one target of a producer. It is the handler of its part of the producer's queue.
type lane struct {
	laneKey
	producer *producer
	queue    *delivery.Lane
	// batch is how many messages a call may be about.
	batch int
	// confirms and deletes guard the two calls apart: a producer may answer one and fail the other.
	confirms breaker
	deletes  breaker
	// cause is why the last Confirm failed, and reached whether the producer itself failed the call.
	cause   string
	reached bool
	// failedAt is when a call last failed.
	failedAt time.Time
	// quarantine holds the ids of a quarantined lane.
	quarantine quarantine
	// busyUntil is when a batch was last taken, a message was quarantined, or the last message that was put off is due.
	busyUntil time.Time
}

const (
	// laneMemory is how long a lane waits for messages that are due before the lane forgets that its target cannot be
	// reached. Messages that do not come have ended, or another coordinator has them.
	laneMemory = 30 * time.Second
	// sharedMemory is the same time while another coordinator may have the messages and has not reached the producer
	// either. In a shorter time each coordinator would often get no message of a dead producer: its circuit would close
	// and open again, and its pauses would begin anew.
	sharedMemory = 5 * time.Minute
)

// producer returns the producer of a name, new or known. c.mu is held.
func (c *Confirmer) producer(name string) *producer {
	p := c.producers[name]
	if p == nil {
		p = c.newProducer(name)
		c.producers[name] = p
	}
	return p
}

func (c *Confirmer) newProducer(name string) *producer {
	return &producer{
		name: name, confirmer: c, lanes: map[laneKey]*lane{},
		queue: delivery.NewWorkQueue(delivery.WorkQueueConfig{
			Name: "confirm", Lock: &c.mu, Workers: &c.work,
			Capacity: delivery.Capacity{Claims: c.config.QueuePerProducer, Bytes: c.config.limits.bytesPerProducer},
			Total:    &c.total,
			Parallel: c.config.CallsPerProducer,
			Pipeline: c.config.Pipeline, State: halfmsg.Pending, Logger: c.config.Logger,
		}),
	}
}

// lane returns the lane of a key, new or known. c.mu is held.
func (p *producer) lane(key laneKey) *lane {
	l := p.lanes[key]
	if l == nil {
		for other := range p.lanes {
			p.severalTargets = p.severalTargets || other.target != key.target
		}
		l = p.newLane(key)
		p.lanes[key] = l
	}
	return l
}

func (p *producer) newLane(key laneKey) *lane {
	config := &p.confirmer.config
	l := &lane{
		laneKey: key, producer: p,
		batch:     config.Batch,
		confirms:  breaker{limit: config.limits.breakerFailures, pause: config.limits.breakerPause},
		deletes:   breaker{limit: config.limits.breakerFailures, pause: config.limits.breakerPause},
		busyUntil: time.Now(),
	}
	parallel, room := config.CallsPerProducer, 0
	switch key.use {
	case normal:
	case bypass:
		l.batch, parallel = 1, 1
	case quarantined:
		l.batch = 1
		l.confirms.limit, l.confirms.tries = quarantineFailures, quarantineRetries
		l.quarantine = quarantine{}
		// Half of the calls and most of the room are for the other lanes, unless there is only one of them.
		parallel, room = max(1, config.CallsPerProducer/2), max(1, config.QueuePerProducer/4)
	}
	l.queue = p.queue.NewLane(l, parallel, room)
	return l
}

// laneFor returns the lane for a message. c.mu is held.
func (p *producer) laneFor(h *delivery.Leased) *lane {
	key := laneKey{target: targetOf(&h.Claim), committed: h.State == halfmsg.Sendable}
	if !key.committed {
		key.use = p.useFor(h)
	}
	return p.lane(key)
}

// push puts a message into the lane. c.mu is held.
func (l *lane) push(h *delivery.Leased) {
	if l.use == quarantined {
		l.queue.Insert(l.insertionPoint(h), h)
	} else {
		l.queue.Push(h)
	}
}

// Permit implements delivery.Handler.
func (l *lane) Permit(now time.Time) delivery.Permit {
	switch l.confirms.state(now) {
	case open:
		return delivery.Postpone
	case halfOpen:
		return delivery.Probe
	case probeUnderWay:
		return delivery.Wait
	}
	return delivery.Proceed
}

// Begin implements delivery.Handler.
func (l *lane) Begin(permit delivery.Permit) (size int) {
	l.busy(time.Now())
	switch permit {
	case delivery.Postpone:
		return l.producer.confirmer.config.Batch
	case delivery.Probe:
		l.confirms.probe()
	}
	return l.batch
}

// End implements delivery.Handler.
func (l *lane) End(b *delivery.Batch) (room bool) {
	if b.Permit == delivery.Probe {
		l.confirms.probeEnded()
	}
	room = l.producer.roomForPass()
	l.producer.tidy()
	return room
}

// tidy drops lanes that are idle and have nothing to remember, and the producer with its last lane. c.mu is held.
func (p *producer) tidy() {
	for key, l := range p.lanes {
		if l.queue.Idle() && !l.remembers() {
			if l.confirms.opened > 0 && l.use == normal {
				p.confirmer.config.Metrics.Paused(p.name, false)
			}
			p.queue.Remove(l.queue)
			delete(p.lanes, key)
		}
	}
	if len(p.lanes) == 0 && p.queue.Idle() {
		delete(p.confirmer.producers, p.name)
	}
}

// remembers says whether the lane has trouble to remember, and waits for messages. c.mu is held.
func (l *lane) remembers() bool {
	trouble := l.confirms.failures+l.confirms.opened+l.deletes.failures+len(l.quarantine) > 0
	overdue := time.Since(l.busyUntil)
	return trouble && (overdue < laneMemory || overdue < sharedMemory && l.shared())
}

// shared says whether another coordinator may have the messages, and has not reached the producer since the last call
// of this one failed.
func (l *lane) shared() bool {
	p := l.producer
	return p.stored && (p.severalTargets || !p.answeredAt.After(l.failedAt))
}

// busy notes that the lane is in use, or will be.
func (l *lane) busy(until time.Time) {
	if until.After(l.busyUntil) {
		l.busyUntil = until
	}
}

// putOff notes, in all lanes of the target, that a message of the target comes again.
func (l *lane) putOff(after time.Duration) {
	for _, use := range []use{normal, quarantined, bypass} {
		if other := l.producer.lanes[laneKey{l.target, l.committed, use}]; other != nil {
			other.busy(time.Now().Add(after))
		}
	}
}

// tidy drops the idle lanes of all producers. A pass that has brought no message says that a lane is idle. The names
// are those of the producers with messages in the store.
func (c *Confirmer) tidy(names []string) {
	var answered map[string]time.Time
	if c.noteStored(names) && c.config.AnsweredAt != nil {
		answered = c.config.AnsweredAt()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, p := range c.producers {
		if at, known := answered[name]; known {
			p.answeredAt = at
		}
		p.tidy()
	}
}

// noteStored notes which producers have messages in the store, and says whether another coordinator may have messages
// for which a lane waits.
func (c *Confirmer) noteStored(names []string) (shared bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.producers {
		p.stored = false
	}
	for _, name := range names {
		if p := c.producers[name]; p != nil {
			p.stored = true
		}
	}
	for _, p := range c.producers {
		for _, l := range p.lanes {
			shared = shared || time.Since(l.busyUntil) >= laneMemory && l.remembers()
		}
	}
	return shared
}

// leftOut are the targets whose circuits are open or have a probe under way. Messages past their time limit are claimed
// nevertheless, to be given up.
func (c *Confirmer) leftOut() (targets []halfmsg.LeftOut) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, p := range c.producers {
		for _, l := range p.lanes {
			if l.use == normal && !l.committed && l.confirms.rests(now) {
				targets = append(targets, halfmsg.LeftOut{
					Target: l.target, Wait: l.confirms.pauseLeft(now), MaxAge: c.config.GiveUpAfter,
				})
			}
		}
	}
	return targets
}

// roomForPass says whether another pass is worth its call. c.mu is held.
func (p *producer) roomForPass() bool { return p.queue.Free() >= p.confirmer.config.QueuePerProducer/2 }

// answered closes the breakers of a target that has answered, and reports a circuit that was open.
func (l *lane) answered(held []delivery.Leased) {
	c := l.producer.confirmer
	c.mu.Lock()
	reopened := l.recordAnswer(held)
	c.mu.Unlock()
	if reopened {
		c.config.Metrics.Paused(l.target.Producer, false)
		c.config.Logger.Info("producer reachable again: circuit closed",
			"producer", l.target.Producer, "target", l.target.Address)
	}
}

// failed counts a failed call, and reports a circuit that opens.
func (l *lane) failed(err error) {
	c := l.producer.confirmer
	c.mu.Lock()
	opened := l.recordFailure(err)
	c.mu.Unlock()
	if opened {
		c.config.Metrics.Paused(l.target.Producer, true)
		c.config.Logger.Warn("producer unreachable: circuit open, its messages wait; check its target and its log",
			"producer", l.target.Producer, "target", l.target.Address, "cause", err)
	}
}

// recordAnswer closes the breakers of a target that has answered, whichever lane the call came from, and lets the
// answered messages leave the quarantine. reopened says whether calls to the target were paused until now. c.mu is
// held.
func (l *lane) recordAnswer(held []delivery.Leased) (reopened bool) {
	batch := l.producer.confirmer.config.Batch
	for _, use := range []use{normal, quarantined, bypass} {
		other := l.producer.lanes[laneKey{l.target, l.committed, use}]
		if other == nil {
			continue
		}
		if other.confirms.succeed() && use == normal {
			reopened = true
		}
		if use == bypass {
			other.batch = batch // as in the normal lane
		}
	}
	for i := range held {
		delete(l.quarantine, held[i].ID)
	}
	l.batch = min(2*l.batch, batch)
	return reopened
}

// recordFailure counts a failed call in the breaker of its lane. A bypass call counts for the normal lane as well,
// where its messages belong; and so does each call that did not reach the target, because such a call says nothing
// about a message. opened reports whether the breaker of the normal lane, which stands for the target, has opened now.
// c.mu is held.
func (l *lane) recordFailure(err error) (opened bool) {
	reached := errors.Is(err, halfmsg.ErrCallFailed)
	if l.use != normal && !reached {
		l.confirms.tripOnNextFailure()
	}
	lanes := []*lane{l}
	if l.use == bypass || (l.use == quarantined && !reached) {
		lanes = append(lanes, l.sibling(normal))
	}
	for _, l := range lanes {
		now := time.Now()
		l.cause, l.reached, l.failedAt = delivery.CauseOf(err), reached, now
		l.busy(now)
		opened = l.confirms.fail(now) && l.use == normal
	}
	return opened
}

// sibling returns another lane of the same target, new or known. c.mu is held.
func (l *lane) sibling(use use) *lane {
	return l.producer.lane(laneKey{l.target, l.committed, use})
}
