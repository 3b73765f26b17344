package publish

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

func withHeaders(id string, headers map[string]string) *Message {
	return &Message{Name: Name{"orders", id}, Exchange: "e", RoutingKey: "k", Headers: headers}
}

// wantSent fails the test unless the message may be sent, or unless its route stalls.
func wantSent(t *testing.T, when string, r *Routes, m *Message, want bool) {
	t.Helper()
	d := r.Decide(m)
	if sent := d.State == Shared; sent != want || errors.Is(d.Err, ErrStalled) == want {
		t.Errorf("%s: message %s with the headers %v is decided %+v", when, m.Name.ID, m.Headers, d)
	}
}

// Messages with the headers of a message without an answer are probed by one at a time; other headers are not held
// back.
func TestHeadersDistinguishKindsOfRoute(t *testing.T) {
	r := NewRoutes(RoutesConfig{Unprobed: true})
	stalled := map[string]string{"to": "a", "what": "b"}
	late := r.Unanswered(withHeaders("1", stalled))
	first, second := withHeaders("2", stalled), withHeaders("3", map[string]string{"what": "b", "to": "a"})
	wantSent(t, "the probe", r, first, true)
	wantSent(t, "the probe once more", r, first, true)
	wantSent(t, "beside the probe", r, second, false)
	for _, others := range []map[string]string{nil, {"to": "b", "what": "a"}, {"to": "a"}} {
		for _, id := range []string{"4", "5"} {
			wantSent(t, "with other headers", r, withHeaders(id, others), true)
		}
	}
	r.Answered(withHeaders("4", nil)) // another queue may have that message
	wantSent(t, "after an answer to another kind", r, second, false)
	r.Release(withHeaders("5", stalled)) // a message that is not the probe
	wantSent(t, "after the end of another message", r, second, false)
	r.Release(first)
	wantSent(t, "after the end of the probe", r, second, true)
	r.Answered(second)
	if r.anyStalled.Load() || len(r.stalled.routes) > 0 {
		t.Errorf("%v is left after an answer", r.stalled.routes)
	}

	r.Unanswered(first)
	late()
	if r.anyStalled.Load() {
		t.Error("a late acknowledgement does not end the stall")
	}
}

// Headers that differ for each message, such as the id of a trace, undo nothing: the sender sends a few messages in
// vain, and then one message at a time probes the route.
func TestManyHeaderKindsStallWholeRoute(t *testing.T) {
	r := NewRoutes(RoutesConfig{Unprobed: true})
	own := func(i int) *Message {
		return withHeaders(fmt.Sprint(i), map[string]string{"trace": fmt.Sprint(i)})
	}
	var sent []*Message
	for i := range 1000 {
		if m := own(i); r.Decide(m).State == Shared {
			sent = append(sent, m)
			r.Unanswered(m)
		}
		if n := len(r.stalled.routes[route{"e", "k"}].kinds); n > MaxHeaderKinds {
			t.Fatalf("%d kinds are remembered, want %d at most", n, MaxHeaderKinds)
		}
	}
	if len(sent) > MaxHeaderKinds+2 {
		t.Errorf("%d were sent in vain, want %d at most", len(sent), MaxHeaderKinds+2)
	}
	for _, m := range sent {
		r.Release(m)
	}
	wantSent(t, "the first probe", r, own(1), true)
	for _, m := range []*Message{own(2), own(2000), withHeaders("3000", nil)} {
		wantSent(t, "beside the probe", r, m, false)
	}
	r.Answered(own(1))
	if r.anyStalled.Load() || len(r.stalled.routes) > 0 {
		t.Errorf("%v is left after an answer", r.stalled.routes)
	}
}

// Each probe of a route with pauses holds a batch of its caller, so all headers share one probe.
func TestPausedRouteIgnoresHeaders(t *testing.T) {
	r := NewRoutes(RoutesConfig{Unprobed: true, Pauses: backoff.Steps{time.Hour}})
	r.Unanswered(withHeaders("1", map[string]string{"to": "a"}))
	wantSent(t, "with other headers", r, withHeaders("2", map[string]string{"to": "b"}), false)
	wantSent(t, "without headers", r, withHeaders("3", nil), false)
	r.Answered(withHeaders("4", map[string]string{"to": "c"}))
	wantSent(t, "after an answer", r, withHeaders("5", nil), true)
}

func TestPausesGrowWithUnansweredProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRoutes(RoutesConfig{Unprobed: true, Pauses: backoff.Exponential(30*time.Second, 2*time.Minute)})
		r.Unanswered(withHeaders("0", nil))
		r.Unanswered(withHeaders("1", nil)) // in flight at the same time
		for i, step := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 2 * time.Minute} {
			wantSent(t, "in the pause", r, withHeaders("other", nil), false)
			time.Sleep(step / 2) // the shortest pause, as pauses have a jitter
			waited := step / 2
			for r.Decide(withHeaders("other", nil)).State == Stalled {
				time.Sleep(time.Second)
				waited += time.Second
			}
			if waited > step+time.Second {
				t.Errorf("the pause after %d messages without an answer was %v, want %v at most", i+1, waited, step)
			}
			r.Release(withHeaders("other", nil))
			probe := withHeaders(fmt.Sprint("probe ", i), nil)
			wantSent(t, "after the pause", r, probe, true)
			wantSent(t, "beside the probe", r, withHeaders("other", nil), false)
			r.Unanswered(probe)
			r.Release(probe)
		}
	})
}

func TestStalledRoutesAreBounded(t *testing.T) {
	r := NewRoutes(RoutesConfig{Unprobed: true})
	for i := range maxStalled + 1 {
		r.Unanswered(&Message{Name: Name{"orders", "1"}, RoutingKey: fmt.Sprint(i)})
	}
	if n := len(r.stalled.routes); n > maxStalled {
		t.Errorf("%d are remembered", n)
	}
}
