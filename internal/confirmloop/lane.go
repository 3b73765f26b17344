package confirmloop

import (
	"runtime"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// producer is what waits for one producer, and how much of it is under way. Confirmer.mu guards it and its lanes.
type producer struct {
	name  string
	room  delivery.Capacity
	lanes map[laneKey]*lane
	// calls counts the batches under way.
	calls int
	// turns counts the batches that were taken.
	turns int
	// taking says that a batch is about to be taken.
	taking bool
	// hungry says that the store may hold more for this producer than the last pass took.
	hungry bool
}

// laneKey tells a producer's lanes apart: by target, whether their messages are committed already, and by what they are
// for.
type laneKey struct {
	address   string
	committed bool
	use       use
}

// use is what a lane is for.
type use uint8

const (
	// normal: whatever is in no other.
	normal use = iota
	// quarantined: messages of failed calls (quarantine.go).
	quarantined
	// bypass: messages submitted while the calls of the normal queue fail (quarantine.go).
	bypass
)

// lane is a queue of one target of a producer.
type lane struct {
	laneKey
	producer *producer
	target   halfmsg.Target
	queue    []delivery.Leased
	// batch is how many messages a call may be about, parallel how many batches may be under way at once, and room how
	// many messages may wait; what a doubtful lane has more is put off.
	batch, parallel, room int
	// calls counts the batches under way, turn is which of its producer's the latest one was.
	calls, turn int
	// confirms and deletes mind the two calls apart: a producer may answer one and fail the other.
	confirms breaker
	deletes  breaker
	// cause is why the last Confirm failed, and reached whether that was the producer's word.
	cause   string
	reached bool
	// quarantine holds the ids of a quarantined lane.
	quarantine quarantine
	// usedAt is when a batch was last taken, or a message was quarantined.
	usedAt time.Time
}

// laneMemory is how long a lane that cannot be reached is remembered when nothing comes for it any more: well above the
// longest pause, or its pause would begin anew each time, and so short that people are not told for long that a
// producer is away which other instances have found to be back.
const laneMemory = 5 * time.Minute

// task is what is to be done with a batch.
type task uint8

const (
	// ask the producer.
	ask task = iota
	// postpone: the producer is out of reach.
	postpone
	// handBack: the instance is stopping.
	handBack
)

// job is a batch on its way.
type job struct {
	lane *lane
	task task
	held []delivery.Leased
	// probe says that this call tries a target again.
	probe bool
}

// producer returns the producer of that name, which need not have been there. c.mu is held.
func (c *Confirmer) producer(name string) *producer {
	p := c.producers[name]
	if p == nil {
		p = &producer{
			name:  name,
			room:  delivery.Capacity{Claims: c.config.QueuePerProducer, Bytes: c.config.limits.bytesPerProducer},
			lanes: map[laneKey]*lane{},
		}
		c.producers[name] = p
	}
	return p
}

// laneOf returns a producer's lane, which need not have been there. c.mu is held.
func (c *Confirmer) laneOf(p *producer, key laneKey) *lane {
	l := p.lanes[key]
	if l == nil {
		l = c.newLane(p, key)
		p.lanes[key] = l
	}
	return l
}

// enqueue puts a message into its lane. c.mu is held.
func (c *Confirmer) enqueue(p *producer, h delivery.Leased) {
	key := laneKey{address: h.CallbackTarget, committed: h.State == halfmsg.Sendable}
	if !key.committed {
		key.use = p.useFor(h)
	}
	c.push(c.laneOf(p, key), h)
}

// push puts a message into a lane. c.mu is held.
func (c *Confirmer) push(l *lane, h delivery.Leased) {
	if l.use == quarantined {
		l.queue = slices.Insert(l.queue, l.insertionPoint(h), h)
	} else {
		l.queue = append(l.queue, h)
	}
	l.producer.room.Add(h)
	c.waiting++
}

// dispatch has a batch of a producer taken when it has any and may have more under way. c.mu is held.
func (c *Confirmer) dispatch(p *producer) {
	if p.taking || p.calls == c.config.CallsPerProducer || p.room.Waiting() == 0 {
		return
	}
	p.taking = true
	c.work.Go(func() {
		j, found := c.take(p)
		if !found {
			return
		}
		if failure := lifecycle.Recovered(func() { c.do(j) }); failure != nil {
			c.config.Logger.Error("a batch of confirmations broke off; it is done again when its leases end",
				"producer", p.name, "messages", len(j.held), "error", failure, "stack", string(failure.Stack))
		}
		c.finished(j)
	})
}

// take takes the next batch of a producer and has the one after it taken. It lets those run first that are ready to: on
// a busy machine they bring messages for the same batch, and a batch costs little more than a message.
func (c *Confirmer) take(p *producer) (j job, found bool) {
	runtime.Gosched()
	c.mu.Lock()
	defer c.mu.Unlock()
	p.taking = false
	if j, found = c.next(p); !found {
		return j, false
	}
	p.calls++
	j.lane.calls++
	c.dispatch(p)
	return j, true
}

// next takes a batch from the lane that has the fewest under way, so that one target of a producer does not take all
// its calls while another has work; where several have as few, from each in turn. c.mu is held.
func (c *Confirmer) next(p *producer) (job, bool) {
	now := time.Now()
	var best *lane
	for _, l := range p.lanes {
		waits := l.confirms.state(now) == probeUnderWay || l.calls >= l.parallel
		if len(l.queue) == 0 || (waits && !l.crowded() && !c.closing) {
			continue
		}
		if best == nil || l.calls < best.calls || (l.calls == best.calls && l.turn < best.turn) {
			best = l
		}
	}
	if best == nil {
		return job{}, false
	}
	j, from, n := job{lane: best}, 0, c.config.Batch
	switch standing := best.confirms.state(now); {
	case c.closing:
		j.task = handBack
	case best.crowded():
		j.task, from = postpone, best.room
	case standing == open:
		j.task = postpone
	case standing == halfOpen:
		best.confirms.probe()
		j.probe = true
		n = best.batch
	default:
		n = best.batch
	}
	best.usedAt = now
	p.turns++
	best.turn = p.turns
	j.held = best.cut(from, n)
	p.room.Remove(j.held...)
	c.waiting -= len(j.held)
	return j, true
}

// crowded says whether the quarantine holds more messages than its room.
func (l *lane) crowded() bool { return l.use == quarantined && len(l.queue) > l.room }

// cut takes at most n messages out of the queue, from that place on.
func (l *lane) cut(from, n int) []delivery.Leased {
	n = min(n, len(l.queue)-from)
	held := slices.Clone(l.queue[from : from+n])
	if from > 0 {
		l.queue = slices.Delete(l.queue, from, from+n)
		return held
	}
	clear(l.queue[:n]) // or the bodies would stay in memory as long as the queue is not empty
	l.queue = l.queue[n:]
	return held
}

// finished ends a batch: what waited for it goes on, and what is not needed any more is dropped.
func (c *Confirmer) finished(j job) {
	c.mu.Lock()
	p := j.lane.producer
	p.calls--
	j.lane.calls--
	if j.probe {
		j.lane.confirms.probeEnded()
	}
	c.dispatch(p)
	wake := p.hungry && c.free(p) >= c.config.QueuePerProducer/2
	if wake {
		p.hungry = false
	}
	c.tidy(p)
	c.mu.Unlock()
	if wake {
		c.config.Pipeline.Due(halfmsg.Pending)
	}
}

// tidy drops lanes that are idle and have nothing to remember, and the producer with its last lane. c.mu is held.
func (c *Confirmer) tidy(p *producer) {
	for key, l := range p.lanes {
		trouble := l.confirms.failures+l.confirms.opened+l.deletes.failures+len(l.quarantine) > 0
		remembers := trouble && time.Since(l.usedAt) < laneMemory
		if len(l.queue) == 0 && l.calls == 0 && !remembers {
			if l.confirms.opened > 0 && l.use == normal {
				c.config.Metrics.Paused(p.name, false)
			}
			delete(p.lanes, key)
		}
	}
	if len(p.lanes) == 0 && p.calls == 0 && !p.taking {
		delete(c.producers, p.name)
	}
}

// free is how many messages may be claimed for a producer: as many as there is room for; one batch, to try with, when
// each of its targets has been left alone for a while; none before that. Only the usual lanes count. c.mu is held.
func (c *Confirmer) free(p *producer) int {
	free := p.room.Free()
	now, targets, tries := time.Now(), 0, 0
	for _, l := range p.lanes {
		if l.use != normal {
			continue
		}
		targets++
		standing := l.confirms.state(now)
		if standing == closed {
			return free
		}
		if standing == halfOpen {
			tries = c.config.Batch
		}
	}
	if targets == 0 {
		return free
	}
	return min(free, tries)
}
