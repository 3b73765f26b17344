package publish

import (
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// ErrStalled says that a queue of the message does not confirm, as a quorum queue without a majority. The message was
// not sent, since another message probes the route.
var ErrStalled = errors.New("the queue does not confirm")

const (
	// maxStalled bounds the stalled routes in the table. At the limit the table forgets all of them; a route that still
	// stalls is found again with the next message.
	maxStalled = 1000
	// MaxHeaderKinds bounds the kinds of headers that the table tells apart on one stalled route. Each kind may have a
	// probe, and the probes of one route must not take all isolated channels of a publisher.
	MaxHeaderKinds = 8
)

// stalledRoutes are the routes for which the broker left messages without an answer. One message at a time probes
// such a route, so that messages without an answer do not take the places of others. Routes.mu guards the fields.
type stalledRoutes struct {
	pauses backoff.Steps
	routes map[route]*stalledRoute
}

// route decides the queues of a message, except for the headers.
type route struct{ exchange, routingKey string }

func (m *Message) route() route { return route{m.Exchange, m.RoutingKey} }

// stalledRoute is one route that stalls. Only a headers exchange reads headers, and the table does not know the type
// of an exchange. So the table holds back messages with the same headers as a message without an answer. On a route
// with more kinds of headers than MaxHeaderKinds, as where each message has its own, all messages are one kind.
type stalledRoute struct {
	kinds map[uint64]stall
	// oneKind: headers make no difference any more.
	oneKind bool
}

// stall is the state of one kind of messages on a route.
type stall struct {
	// probe is the message that probes the route; zero while no message does.
	probe identity
	// unanswered counts the messages that stalled the route: the first one and every probe.
	unanswered int
	// pauseEnd is when the next probe may be sent.
	pauseEnd time.Time
}

var headersSeed = maphash.MakeSeed()

// kindOf tells messages of a route apart by their headers: zero without headers.
func kindOf(headers map[string]string) (kind uint64) {
	for key, value := range headers {
		kind += maphash.Comparable(headersSeed, [2]string{key, value}) // a sum, since headers have no order
	}
	return kind
}

// find returns the stalled route of messages and the key of their kind; nil where the route does not stall.
func (s *stalledRoutes) find(of route, kind uint64) (*stalledRoute, uint64) {
	stalled := s.routes[of]
	if stalled == nil || stalled.oneKind {
		kind = 0
	}
	return stalled, kind
}

// decide gives the state back unless the route of the message stalls. A message that may be sent on a stalled route is
// the probe of the route from now on.
func (s *stalledRoutes) decide(m *Message, otherwise State) Decision {
	if s.routes[m.route()] == nil {
		return Decision{State: otherwise}
	}
	stalled, kind := s.find(m.route(), kindOf(m.Headers))
	entry, stalls := stalled.kinds[kind]
	if !stalls || entry.probe == m.identity() {
		return Decision{State: otherwise}
	}
	if entry.probe != (identity{}) {
		return Decision{State: Stalled, Err: stalledError(m)}
	}
	if pause := time.Until(entry.pauseEnd); pause > 0 {
		return Decision{State: Stalled, RetryIn: pause, Err: stalledError(m)}
	}
	entry.probe = m.identity()
	stalled.kinds[kind] = entry
	return Decision{State: otherwise}
}

func stalledError(m *Message) error {
	return fmt.Errorf("%w: exchange %q, routing key %q: the broker left messages without an answer; "+
		"one message at a time probes the route", ErrStalled, m.Exchange, m.RoutingKey)
}

// stall records a message without an answer. A message in flight beside a probe says nothing new.
func (s *stalledRoutes) stall(m *Message, kind uint64) {
	stalled, key := s.find(m.route(), kind)
	if stalled == nil {
		if s.routes == nil || len(s.routes) >= maxStalled {
			s.routes = make(map[route]*stalledRoute)
		}
		stalled, key = &stalledRoute{kinds: make(map[uint64]stall)}, kind
		s.routes[m.route()] = stalled
	}
	entry, stalls := stalled.kinds[key]
	if stalls && entry.probe != m.identity() {
		return
	}
	if !stalls && len(stalled.kinds) >= MaxHeaderKinds {
		stalled.oneKind, key = true, 0
		clear(stalled.kinds)
	}
	entry.pauseEnd = time.Now().Add(s.pauses.Delay(entry.unanswered))
	entry.unanswered++
	stalled.kinds[key] = entry
}

// DecideShared is Decide for a sender that sends the messages of all exchanges on one channel: Shared or Stalled.
func (r *Routes) DecideShared(m *Message) Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stalled.decide(m, Shared)
}

// Unanswered records that the broker did not answer a message in time: the route stalls. The caller also calls
// Release, and the returned function on a late acknowledgement. The function keeps no headers.
func (r *Routes) Unanswered(m *Message) (acknowledged func()) {
	kind := kindOf(m.Headers)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled.stall(m, kind)
	r.anyStalled.Store(true)
	of := m.route()
	return func() { r.endStall(of, kind) }
}

// Answered records an answer of the broker to a message: the route does not stall.
func (r *Routes) Answered(m *Message) {
	if r.anyStalled.Load() {
		r.endStall(m.route(), kindOf(m.Headers))
	}
}

func (r *Routes) endStall(of route, kind uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stalled, key := r.stalled.find(of, kind)
	if stalled == nil {
		return
	}
	if delete(stalled.kinds, key); len(stalled.kinds) == 0 {
		delete(r.stalled.routes, of)
	}
	r.anyStalled.Store(len(r.stalled.routes) > 0)
}

// Release ends the attempt of a message without an answer: another message may probe the stalled route.
func (r *Routes) Release(m *Message) {
	if !r.anyStalled.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	stalled, key := r.stalled.find(m.route(), kindOf(m.Headers))
	if stalled == nil {
		return
	}
	if entry, stalls := stalled.kinds[key]; stalls && entry.probe == m.identity() {
		entry.probe = identity{}
		stalled.kinds[key] = entry
	}
}

// IsStalled says whether the route of a message stalls.
func (r *Routes) IsStalled(m *Message) bool {
	if !r.anyStalled.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	stalled, key := r.stalled.find(m.route(), kindOf(m.Headers))
	if stalled == nil {
		return false
	}
	_, stalls := stalled.kinds[key]
	return stalls
}

// ResetStalled forgets the stalled routes, as after an alarm of the broker: the alarm kept back the answers, not a
// queue.
func (r *Routes) ResetStalled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled.routes = nil
	r.anyStalled.Store(false)
}
