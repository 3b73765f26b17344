package rabbitmq

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// ErrSilent says that the queue a message is for, or one of them, does not confirm: a quorum queue without a majority,
// as a rule. The message was not sent, as another one is trying whether it does again.
var ErrSilent = errors.New("the queue does not confirm")

// maxSilences is how many are remembered before they are all forgotten; each is found out again within a confirm timeout.
const maxSilences = 1000

// silences are the routes for which the broker has left messages without an answer. One message at a time tries such a
// route, so that the others' places are not all taken by what nobody answers.
type silences struct {
	// some says that there are any; each message looks at it twice.
	some atomic.Bool
	// patience is how long the tries of a route lasted that is silent.
	patience time.Duration

	mu sync.Mutex
	// tries holds the message that tries the route; none while nobody does.
	tries map[route]halfmsg.Name
}

// route is what decides which queues a message goes to, but for its headers.
type route struct{ exchange, routingKey string }

func routeOf(m *halfmsg.Publishing) route { return route{m.Exchange, m.RoutingKey} }

// note takes a flight that had no answer in time. One that comes later ends the silence as well: there was no lack of a
// queue, but of a broker that was blocked or stood still.
func (s *silences) note(f *flight) {
	r := route{f.key.exchange, f.key.routingKey}
	s.mu.Lock()
	defer s.mu.Unlock()
	go func() {
		<-f.confirmation.Done() // at the latest when the channel is closed
		if f.confirmation.Acked() {
			s.end(r)
		}
	}()
	if _, known := s.tries[r]; known {
		return
	}
	if s.tries == nil || len(s.tries) >= maxSilences {
		s.tries = make(map[route]halfmsg.Name)
	}
	s.tries[r] = halfmsg.Name{}
	s.some.Store(true)
}

// end ends the silence of a route.
func (s *silences) end(r route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tries, r)
	s.some.Store(len(s.tries) > 0)
}

// ask says why a message must not be sent now. One that may be sent on a silent route must be heard of afterwards.
func (s *silences) ask(m *halfmsg.Publishing) error {
	if !s.some.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	trying, silent := s.tries[routeOf(m)]
	switch {
	case !silent || trying == m.Name:
		return nil
	case trying != halfmsg.Name{}:
		return fmt.Errorf("%w: exchange %q, routing key %q: no answer of the broker within %v, and one message at a time tries it",
			ErrSilent, m.Exchange, m.RoutingKey, s.patience)
	}
	s.tries[routeOf(m)] = m.Name
	return nil
}

// heard takes a message's outcome: an answer ends the silence of its route, anything else the try.
func (s *silences) heard(m *halfmsg.Publishing, result halfmsg.PublishResult) {
	if !s.some.Load() {
		return
	}
	r := routeOf(m)
	if result.Outcome == halfmsg.Acked || result.Outcome == halfmsg.Refused {
		s.end(r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tries[r] == m.Name { // a route without a try, or without a silence, has no name
		s.tries[r] = halfmsg.Name{}
	}
}

// reset forgets all of them.
func (s *silences) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries = nil
	s.some.Store(false)
}
