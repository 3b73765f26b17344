package confirmloop

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/halfmsg/owner"
)

// producer is what waits for one producer, and how much of it is under way. Confirmer.mu guards it and its lanes.
type producer struct {
	name  string
	room  owner.Room
	lanes map[laneKey]*lane
	// calls counts the batches under way.
	calls int
	// taking says that a batch is about to be taken.
	taking bool
	// hungry says that the store may hold more for this producer than the last pass took.
	hungry bool
}

// laneKey tells a producer's lanes apart: by target, and whether there is anything to ask at all.
type laneKey struct {
	address string
	trusted bool
}

// lane is the queue of one target of a producer.
type lane struct {
	target  halfmsg.Target
	trusted bool
	queue   []owner.Held
	// calls counts the batches under way.
	calls int
	// confirms and deletes mind the two calls apart: a producer may answer one and fail the other.
	confirms breaker
	deletes  breaker
	// cause is why the last Confirm failed.
	cause string
	// most is how many messages a batch may have since the producer failed one; 0 is as many as any.
	most int
	// failing are the messages for which the producer fails the call.
	failing failing
	// usedAt is when work was last taken from the lane.
	usedAt time.Time
}

// answered makes batches larger again, up to full ones, as the producer has answered.
func (l *lane) answered(full int) {
	l.failing.inARow = 0
	if l.most *= 2; l.most >= full {
		l.most = 0
	}
}

// maxFailing is how many messages are remembered for which a producer fails the call.
const maxFailing = 1000

// failing are messages for which a producer fails the call, by their ids.
type failing struct {
	ids map[string]struct{}
	// inARow counts those that were added since it answered.
	inARow int
}

// add takes such a message and says how many new ones came in a row; 0 if this one is not new.
func (f *failing) add(id string) (inARow int) {
	if _, known := f.ids[id]; known {
		return 0
	}
	if f.ids == nil || len(f.ids) >= maxFailing {
		f.ids = make(map[string]struct{})
	}
	f.ids[id] = struct{}{}
	f.inARow++
	return f.inARow
}

// forgotten is how long a lane that cannot be reached is remembered when nothing comes for it any more: well above the
// longest pause, or its pause would begin anew each time, and so short that people are not told for long that a producer
// is away which other instances have found to be back.
const forgotten = 5 * time.Minute

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
	producer *producer
	lane     *lane
	task     task
	held     []owner.Held
	// probe says that this call tries a target again.
	probe bool
}

// producer returns the producer of that name, which need not have been there. c.mu is held.
func (c *Confirmer) producer(name string) *producer {
	p := c.producers[name]
	if p == nil {
		p = &producer{
			name:  name,
			room:  owner.Room{Claims: c.config.QueuePerProducer, Bytes: c.config.BytesPerProducer},
			lanes: map[laneKey]*lane{},
		}
		c.producers[name] = p
	}
	return p
}

// enqueue puts a message into its lane. c.mu is held.
func (c *Confirmer) enqueue(p *producer, h owner.Held, trusted bool) {
	key := laneKey{address: h.CallbackTarget, trusted: trusted}
	l := p.lanes[key]
	if l == nil {
		l = &lane{
			target:   halfmsg.Target{Producer: p.name, Address: h.CallbackTarget},
			trusted:  trusted,
			confirms: breaker{limit: c.config.BreakerFailures, pause: c.config.BreakerPause},
			deletes:  breaker{limit: c.config.BreakerFailures, pause: c.config.BreakerPause},
			usedAt:   time.Now(),
		}
		p.lanes[key] = l
	}
	l.queue = append(l.queue, h)
	p.room.Enter(h)
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
		if failure := owner.Recovered(func() { c.do(j) }); failure != nil {
			c.config.Logger.Error("a batch of confirmations broke off; it is done again when its leases end",
				"producer", p.name, "messages", len(j.held), "error", failure, "stack", string(failure.Stack))
		}
		c.finished(j)
	})
}

// take takes the next batch of a producer and has the one after it taken. It lets those run first that are ready to: on a
// busy machine they bring messages for the same batch, and a batch costs little more than a message.
func (c *Confirmer) take(p *producer) (j job, found bool) {
	runtime.Gosched()
	c.mu.Lock()
	defer c.mu.Unlock()
	p.taking = false
	if j, found = c.next(p); !found {
		c.tidy(p)
		return j, false
	}
	p.calls++
	j.lane.calls++
	c.dispatch(p)
	return j, true
}

// next takes a batch from the lane that has the fewest under way, so that one target of a producer does not take all
// its calls while another has work. c.mu is held.
func (c *Confirmer) next(p *producer) (job, bool) {
	now := time.Now()
	var best *lane
	for _, l := range p.lanes {
		if len(l.queue) == 0 || (l.confirms.standing(now) == trying && !c.closing) {
			continue
		}
		if best == nil || l.calls < best.calls {
			best = l
		}
	}
	if best == nil {
		return job{}, false
	}
	j := job{producer: p, lane: best}
	switch standing := best.confirms.standing(now); {
	case c.closing:
		j.task = handBack
	case standing == open:
		j.task = postpone
	case standing == due:
		best.confirms.probe()
		j.probe = true
	}
	best.usedAt = now
	n := min(len(best.queue), cmp.Or(best.most, c.config.Batch))
	j.held = slices.Clone(best.queue[:n])
	clear(best.queue[:n]) // or the bodies would stay in memory as long as the queue is not empty
	best.queue = best.queue[n:]
	p.room.Leave(j.held...)
	c.waiting -= n
	return j, true
}

// finished ends a batch: what waited for it goes on, and what is not needed any more is dropped.
func (c *Confirmer) finished(j job) {
	c.mu.Lock()
	p := j.producer
	p.calls--
	j.lane.calls--
	if j.probe {
		// A probe that broke off has told nothing; the next one may try.
		j.lane.confirms.probing = false
	}
	c.dispatch(p)
	wake := p.hungry && c.free(p) >= c.config.QueuePerProducer/2
	if wake {
		p.hungry = false
	}
	c.tidy(p)
	c.mu.Unlock()
	if wake {
		c.config.Wake()
	}
}

// tidy drops lanes that are idle and have nothing to remember, and the producer with its last lane. c.mu is held.
func (c *Confirmer) tidy(p *producer) {
	for key, l := range p.lanes {
		trouble := l.confirms.failures+l.deletes.failures+l.most+len(l.failing.ids) > 0
		remembers := trouble && time.Since(l.usedAt) < forgotten
		if len(l.queue) == 0 && l.calls == 0 && !remembers {
			if l.confirms.failures >= l.confirms.limit {
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
// each of its targets has been left alone for a while; none before that. c.mu is held.
func (c *Confirmer) free(p *producer) int {
	free := p.room.Free()
	if len(p.lanes) == 0 {
		return free
	}
	now, tries := time.Now(), 0
	for _, l := range p.lanes {
		standing := l.confirms.standing(now)
		if standing == closed {
			return free
		}
		if standing == due {
			tries = c.config.Batch
		}
	}
	return min(free, tries)
}
