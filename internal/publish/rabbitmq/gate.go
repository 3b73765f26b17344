package rabbitmq

import (
	"errors"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

const (
	// refusalHolds is how long an exchange that the broker would not take from is not tried again. It spares the broker
	// a closed channel for each of many messages, and is shorter than any sensible send.backoff.
	refusalHolds = time.Second
	// suspicionHolds is how long a message is remembered that was on its way when a channel was closed.
	suspicionHolds = 10 * time.Minute
	// maxExchanges is how many exchanges are remembered before those that are of no use are forgotten.
	maxExchanges = 1000
)

// gate knows which exchanges the broker takes messages for.
//
// A message that the broker will not take (no such exchange, no permission, too large for it) closes the channel, and
// everything in flight there is in doubt. So the first message to an exchange travels alone, on a channel of its own;
// the others wait for its answer. When an exchange turns bad later, all that was in flight then travels alone the next
// time: that finds the culprit without reading it out of an error text, whatever the fault is.
type gate struct {
	mu        sync.Mutex
	exchanges map[string]*exchange
	suspects  map[halfmsg.Name]time.Time
}

// exchange is what is known of one.
type exchange struct {
	// good: the broker has answered to a message for it.
	good bool
	// refusal is why the broker would not take from it, until a time.
	refusal error
	until   time.Time
	// trial is closed when the first message has its answer; nil when none is on its way.
	trial chan struct{}
}

// way is how a message may travel.
type way int

const (
	// together with others.
	together way = iota
	// alone: it is under suspicion.
	alone
	// first: alone, and others wait for it; the caller must call endFirst.
	first
	// wait for the first one, then ask again.
	wait
	// not at all: the exchange was refused just now.
	not
)

func newGate() *gate {
	g := &gate{}
	g.reset()
	return g
}

// reset forgets everything.
func (g *gate) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.exchanges {
		if e.trial != nil {
			close(e.trial)
		}
	}
	g.exchanges = make(map[string]*exchange)
	g.suspects = make(map[halfmsg.Name]time.Time)
}

// ask says how a message may travel; with wait comes what to wait for, with not the refusal.
func (g *gate) ask(m *halfmsg.Publishing) (way, <-chan struct{}, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.exchange(m.Exchange)
	_, suspect := g.suspects[m.Name]
	switch {
	case e.refusal != nil && time.Now().Before(e.until):
		return not, nil, e.refusal
	case suspect:
		return alone, nil, nil
	case e.good:
		return together, nil, nil
	case e.trial != nil:
		return wait, e.trial, nil
	default:
		e.trial = make(chan struct{})
		return first, nil, nil
	}
}

// refusal is why the exchange was refused just now, nil if it was not.
func (g *gate) refusal(name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.exchanges[name]; e != nil && time.Now().Before(e.until) {
		return e.refusal
	}
	return nil
}

// tried tells what became of a message that travelled alone.
func (g *gate) tried(m *halfmsg.Publishing, result halfmsg.PublishResult) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if result.Outcome == halfmsg.Acked || result.Outcome == halfmsg.Refused {
		delete(g.suspects, m.Name)
		g.exchange(m.Exchange).learn(result.Cause)
	}
}

// presume lets others follow a message that travels alone and has no answer for long: the exchange seems to take it.
func (g *gate) presume(name string) {
	g.mu.Lock()
	g.exchange(name).good = true
	g.mu.Unlock()
	g.endFirst(name)
}

// endFirst lets those ask again who wait for the first message to the exchange.
func (g *gate) endFirst(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.exchanges[name]; e != nil && e.trial != nil {
		close(e.trial)
		e.trial = nil
	}
}

// learn takes the broker's answer to a message as one about its exchange.
func (e *exchange) learn(cause error) {
	var closed *amqp.Error
	switch {
	case !errors.As(cause, &closed):
		e.good, e.refusal = true, nil // An ack, a nack or a return: it was the exchange that took it.
	case closed.Code == amqp.NotFound, closed.Code == amqp.AccessRefused && !aboutTopic(closed.Reason):
		e.good, e.refusal, e.until = false, closed, time.Now().Add(refusalHolds)
	}
}

// aboutTopic says whether a permission failed for the routing key only: another message may well pass.
func aboutTopic(reason string) bool { return strings.Contains(reason, "access to topic '") }

// distrust is told what was in flight on a channel that the broker closed.
func (g *gate) distrust(inFlight []*flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for name, at := range g.suspects {
		if now.Sub(at) > suspicionHolds {
			delete(g.suspects, name)
		}
	}
	for _, f := range inFlight {
		g.suspects[f.key.name] = now
		g.exchange(f.key.exchange).good = false
	}
}

// exchange finds or makes an entry; g.mu is held.
func (g *gate) exchange(name string) *exchange {
	e := g.exchanges[name]
	if e != nil {
		return e
	}
	if len(g.exchanges) >= maxExchanges {
		g.prune()
	}
	e = &exchange{}
	g.exchanges[name] = e
	return e
}

// prune forgets exchanges of which nothing useful is known, and all if that frees no room; g.mu is held.
func (g *gate) prune() {
	now := time.Now()
	for name, e := range g.exchanges {
		if e.trial == nil && !e.good && now.After(e.until) {
			delete(g.exchanges, name)
		}
	}
	if len(g.exchanges) < maxExchanges {
		return
	}
	for name, e := range g.exchanges {
		if e.trial == nil {
			delete(g.exchanges, name)
		}
	}
}
