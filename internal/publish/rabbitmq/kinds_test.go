package rabbitmq

import (
	"errors"
	"fmt"
	"testing"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

func withHeaders(id string, headers map[string]string) *halfmsg.Publishing {
	return &halfmsg.Publishing{
		Name: halfmsg.Name{Producer: "orders", ID: id}, Exchange: "e", RoutingKey: "k", Headers: headers,
	}
}

// What has the headers of a message without an answer is tried by one at a time; what has others is not held back.
func TestHeadersTellKindsOfARouteApart(t *testing.T) {
	s := &silences{}
	silent := map[string]string{"to": "a", "what": "b"}
	s.begin(routeOf(withHeaders("1", silent)), kindOf(silent))
	first, second := withHeaders("2", silent), withHeaders("3", map[string]string{"what": "b", "to": "a"})
	if err := s.ask(first); err != nil {
		t.Error("the one that tries is held back:", err)
	}
	if err := s.ask(second); !errors.Is(err, ErrSilent) {
		t.Errorf("another one with those headers: %v", err)
	}
	for _, others := range []map[string]string{nil, {"to": "b", "what": "a"}, {"to": "a"}} {
		for _, id := range []string{"4", "5"} {
			if err := s.ask(withHeaders(id, others)); err != nil {
				t.Errorf("one with %v: %v", others, err)
			}
		}
	}
	// An answer to another kind ends nothing, as other queues may have it.
	s.heard(withHeaders("4", nil), halfmsg.PublishResult{Outcome: halfmsg.Acked})
	if err := s.ask(second); !errors.Is(err, ErrSilent) {
		t.Errorf("after an answer to another kind: %v", err)
	}
	s.heard(first, unsure(nil))
	if err := s.ask(second); err != nil {
		t.Error("after the try has ended, the next one is held back:", err)
	}
	s.heard(second, halfmsg.PublishResult{Outcome: halfmsg.Acked})
	if s.some.Load() || len(s.routes) > 0 {
		t.Errorf("%v is left after an answer", s.routes)
	}
}

// Headers that each message has of its own, such as the id of a trace, undo nothing: a few are sent in vain, and then one
// message at a time tries the route.
func TestARouteOfManyKindsIsSilentAsAWhole(t *testing.T) {
	s := &silences{}
	own := func(i int) *halfmsg.Publishing {
		return withHeaders(fmt.Sprint(i), map[string]string{"trace": fmt.Sprint(i)})
	}
	var sent []*halfmsg.Publishing
	for i := range 1000 {
		if m := own(i); s.ask(m) == nil {
			sent = append(sent, m)
			s.begin(routeOf(m), kindOf(m.Headers)) // it has no answer
		}
		if n := len(s.routes[route{"e", "k"}].tries); n > maxKinds {
			t.Fatalf("%d kinds are remembered, want %d at most", n, maxKinds)
		}
	}
	if len(sent) > maxKinds+2 {
		t.Errorf("%d were sent in vain, want %d at most", len(sent), maxKinds+2)
	}
	for _, m := range sent {
		s.heard(m, unsure(nil))
	}
	if err := s.ask(own(1)); err != nil {
		t.Error("nobody may try the route:", err)
	}
	for _, m := range []*halfmsg.Publishing{own(2), own(2000), withHeaders("3000", nil)} {
		if err := s.ask(m); !errors.Is(err, ErrSilent) {
			t.Errorf("while one tries the route, %s is sent: %v", m.Name, err)
		}
	}
	s.heard(own(1), halfmsg.PublishResult{Outcome: halfmsg.Acked})
	if s.some.Load() || len(s.routes) > 0 {
		t.Errorf("%v is left after an answer", s.routes)
	}
}
