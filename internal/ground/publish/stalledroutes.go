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
	config RoutesConfig
	routes map[route]*stalledRoute
}

// route decides the queues of a message, except for the headers.
type route struct{ exchange, routingKey string }

// of is the route of a message, and the kind of its headers.
func (s *stalledRoutes) of(m *Message) (route, uint64) {
	switch {
	case s.config.ByExchange:
		return route{exchange: m.Exchange}, 0
	case s.config.Pauses != nil:
		return route{m.Exchange, m.RoutingKey}, 0
	default:
		return route{m.Exchange, m.RoutingKey}, kindOf(m.Headers)
	}
}

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
	probe Name
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
func (s *stalledRoutes) find(on route, kind uint64) (*stalledRoute, uint64) {
	stalled := s.routes[on]
	if stalled == nil || stalled.oneKind {
		kind = 0
	}
	return stalled, kind
}

// decide gives the state back unless the route of the message stalls. A message that may be sent on a stalled route is
// the probe of the route from now on.
func (s *stalledRoutes) decide(m *Message, otherwise State) Decision {
	if len(s.routes) == 0 {
		return Decision{State: otherwise}
	}
	stalled, kind := s.find(s.of(m))
	if stalled == nil {
		return Decision{State: otherwise}
	}
	entry, stalls := stalled.kinds[kind]
	if !stalls || entry.probe == m.Name {
		return Decision{State: otherwise}
	}
	if entry.probe != (Name{}) || time.Now().Before(entry.pauseEnd) {
		return Decision{State: Stalled, Err: stalledError(m)}
	}
	entry.probe = m.Name
	stalled.kinds[kind] = entry
	return Decision{State: otherwise}
}

func stalledError(m *Message) error {
	return fmt.Errorf("%w: exchange %q, routing key %q: the broker left messages without an answer; "+
		"one message at a time probes the route", ErrStalled, m.Exchange, m.RoutingKey)
}

// stall records a message that was not stored, and the pause before the next probe. A message in flight beside a probe
// says nothing new.
func (s *stalledRoutes) stall(m *Message, on route, kind uint64, pauses backoff.Steps) {
	stalled, key := s.find(on, kind)
	if stalled == nil {
		if s.routes == nil || len(s.routes) >= maxStalled {
			s.routes = make(map[route]*stalledRoute)
		}
		stalled, key = &stalledRoute{kinds: make(map[uint64]stall)}, kind
		s.routes[on] = stalled
	}
	entry, stalls := stalled.kinds[key]
	if stalls && entry.probe != m.Name {
		return
	}
	if !stalls && len(stalled.kinds) >= MaxHeaderKinds {
		stalled.oneKind, key = true, 0
		clear(stalled.kinds)
	}
	entry.pauseEnd = time.Now().Add(pauses.Delay(entry.unanswered))
	entry.unanswered++
	stalled.kinds[key] = entry
}

// Unanswered records that the broker did not answer a message in time: the route stalls. The caller also calls
// Release, and the returned function on a late acknowledgement. The function keeps no headers.
func (r *Routes) Unanswered(m *Message) (acknowledged func()) {
	on, kind := r.stalled.of(m)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled.stall(m, on, kind, r.config.Pauses)
	r.anyStalled.Store(true)
	return func() { r.endStall(on, kind) }
}

// NotStored records that a message failed without a wait, as the broker cannot store the message now: the route stalls,
// and probes follow each other without a pause. The caller also calls Release.
func (r *Routes) NotStored(m *Message) {
	on, kind := r.stalled.of(m)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled.stall(m, on, kind, nil)
	r.anyStalled.Store(true)
}

// Answered records an answer of the broker to a message: the route does not stall.
func (r *Routes) Answered(m *Message) {
	if r.anyStalled.Load() {
		r.endStall(r.stalled.of(m))
	}
}

func (r *Routes) endStall(on route, kind uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stalled, key := r.stalled.find(on, kind)
	if stalled == nil {
		return
	}
	if delete(stalled.kinds, key); len(stalled.kinds) == 0 {
		delete(r.stalled.routes, on)
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
	stalled, key := r.stalled.find(r.stalled.of(m))
	if stalled == nil {
		return
	}
	if entry, stalls := stalled.kinds[key]; stalls && entry.probe == m.Name {
		entry.probe = Name{}
		stalled.kinds[key] = entry
	}
}

// ResetStalled forgets the stalled routes, as after an alarm of the broker: the alarm kept back the answers, not a
// queue.
func (r *Routes) ResetStalled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled.routes = nil
	r.anyStalled.Store(false)
}
