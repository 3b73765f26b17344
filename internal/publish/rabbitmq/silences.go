package rabbitmq

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// ErrSilent says that the queue a message is for, or one of them, does not confirm: a quorum queue without a majority,
// as a rule. The message was not sent, as another one is trying whether it does again.
var ErrSilent = errors.New("the queue does not confirm")

const (
	// maxSilences is how many routes are remembered before they are all forgotten; each is found out again within a confirm
	// timeout.
	maxSilences = 1000
	// maxKinds is how many kinds of messages of a silent route are told apart by their headers. Each may have a message that
	// tries it, and those of a route must not take all places of who travels alone.
	maxKinds = trialLanes / 2
)

// silences are the routes for which the broker has left messages without an answer. One message at a time tries such a
// route, so that the others' places are not all taken by what nobody answers.
type silences struct {
	// some says that there are any; each message looks at it twice.
	some atomic.Bool
	// patience is how long the tries of a route lasted that is silent.
	patience time.Duration

	mu     sync.Mutex
	routes map[route]*silence
}

// route is what decides which queues a message goes to, but for its headers.
type route struct{ exchange, routingKey string }

func routeOf(m *halfmsg.Publishing) route { return route{m.Exchange, m.RoutingKey} }

// silence is a route that is silent. Only a headers exchange looks at headers, and nobody here knows of what type one is: so
// what has the headers of a message without an answer is held back, and the others are not. Where that are more kinds than
// maxKinds, as where each message has headers of its own, all of the route is.
type silence struct {
	// tries holds the kinds that are silent, and of each the message that tries it; none while nobody does.
	tries map[uint64]halfmsg.Name
	// whole says that the route is silent, whatever the headers: there is one kind.
	whole bool
}

var headersSeed = maphash.MakeSeed()

// kindOf tells messages of a route apart by the caller's headers: 0 where there are none.
func kindOf(headers map[string]string) (kind uint64) {
	for key, value := range headers {
		kind += maphash.Comparable(headersSeed, [2]string{key, value}) // they have no order
	}
	return kind
}

func (s *silence) key(kind uint64) uint64 {
	if s.whole {
		return 0
	}
	return kind
}

// note takes a flight that had no answer in time. One that comes later ends the silence as well: there was no lack of a
// queue, but of a broker that was blocked or stood still.
func (s *silences) note(f *flight) {
	r, kind := route{f.key.exchange, f.key.routingKey}, kindOf(f.headers)
	f.headers = nil // the flight may stay as long as its channel
	s.begin(r, kind)
	go func() {
		<-f.confirmation.Done() // at the latest when the channel is closed
		if f.confirmation.Acked() {
			s.end(r, kind)
		}
	}()
}

// begin has a kind of messages of a route be silent, if it is not yet.
func (s *silences) begin(r route, kind uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := s.routes[r]
	if silent == nil {
		if s.routes == nil || len(s.routes) >= maxSilences {
			s.routes = make(map[route]*silence)
		}
		silent = &silence{tries: make(map[uint64]halfmsg.Name)}
		s.routes[r] = silent
		s.some.Store(true)
	}
	if _, known := silent.tries[silent.key(kind)]; known {
		return
	}
	if len(silent.tries) >= maxKinds {
		silent.whole = true
		clear(silent.tries)
	}
	silent.tries[silent.key(kind)] = halfmsg.Name{}
}

// end ends the silence of a kind of messages of a route.
func (s *silences) end(r route, kind uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := s.routes[r]
	if silent == nil {
		return
	}
	if delete(silent.tries, silent.key(kind)); len(silent.tries) == 0 {
		delete(s.routes, r)
	}
	s.some.Store(len(s.routes) > 0)
}

// ask says why a message must not be sent now. One that may be sent on a silent route must be heard of afterwards.
func (s *silences) ask(m *halfmsg.Publishing) error {
	if !s.some.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := s.routes[routeOf(m)]
	if silent == nil {
		return nil
	}
	key := silent.key(kindOf(m.Headers))
	trying, known := silent.tries[key]
	switch {
	case !known || trying == m.Name:
		return nil
	case trying != halfmsg.Name{}:
		return fmt.Errorf("%w: exchange %q, routing key %q: no answer of the broker within %v, and one message at a time tries it",
			ErrSilent, m.Exchange, m.RoutingKey, s.patience)
	}
	silent.tries[key] = m.Name
	return nil
}

// heard takes a message's outcome: an answer ends the silence of its kind, anything else the try.
func (s *silences) heard(m *halfmsg.Publishing, result halfmsg.PublishResult) {
	if !s.some.Load() {
		return
	}
	if result.Outcome == halfmsg.Acked || result.Outcome == halfmsg.Refused {
		s.end(routeOf(m), kindOf(m.Headers))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := s.routes[routeOf(m)]
	if silent == nil {
		return
	}
	if key := silent.key(kindOf(m.Headers)); silent.tries[key] == m.Name { // a kind without a try, or without a silence, has no name
		silent.tries[key] = halfmsg.Name{}
	}
}

// reset forgets all of them.
func (s *silences) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routes = nil
	s.some.Store(false)
}
