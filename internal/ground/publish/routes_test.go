package publish

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

var errNoExchange = errors.New("no such exchange")

func to(exchange, id string) *Message {
	return &Message{Name: Name{"orders", id}, Exchange: exchange, RoutingKey: "k"}
}

func wantState(t *testing.T, when string, r *Routes, m *Message, want State) Decision {
	t.Helper()
	d := r.Decide(m)
	if d.State != want {
		t.Errorf("%s: message %s to %s has the state %d, want %d", when, m.Name.ID, m.Exchange, d.State, want)
	}
	return d
}

func ended(probe <-chan struct{}) bool {
	select {
	case <-probe:
		return true
	default:
		return false
	}
}

func TestFirstMessageProbesItsExchange(t *testing.T) {
	r := NewRoutes(RoutesConfig{})
	wantState(t, "first", r, to("e", "1"), Probe)
	pending := wantState(t, "second", r, to("e", "2"), Pending)
	wantState(t, "first of another exchange", r, to("other", "3"), Probe)
	r.Accept("e")
	r.EndProbe("e")
	if !ended(pending.ProbeEnded) {
		t.Error("the pending message is not woken")
	}
	wantState(t, "after the probe", r, to("e", "2"), Shared)

	pending = wantState(t, "beside the other probe", r, to("other", "4"), Pending)
	r.EndProbe("other") // without an answer
	if !ended(pending.ProbeEnded) {
		t.Error("the pending message is not woken without an answer")
	}
	wantState(t, "after a probe without an answer", r, to("other", "4"), Probe)
	r.Presume("other")
	wantState(t, "after a probe that takes long", r, to("other", "5"), Shared)
}

func TestRejectedExchangeIsProbedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRoutes(RoutesConfig{})
		wantState(t, "first", r, to("e", "1"), Probe)
		r.Reject("e", errNoExchange)
		r.EndProbe("e")
		if d := wantState(t, "after the rejection", r, to("e", "2"), Rejected); !errors.Is(d.Err, errNoExchange) {
			t.Errorf("refused because of %v", d.Err)
		}
		if err := r.Rejection("e"); !errors.Is(err, errNoExchange) {
			t.Errorf("refused because of %v", err)
		}
		if err := r.Rejection("other"); err != nil {
			t.Errorf("another exchange is refused: %v", err)
		}
		time.Sleep(rejectionTTL)
		if err := r.Rejection("e"); err != nil {
			t.Errorf("still refused: %v", err)
		}
		wantState(t, "later", r, to("e", "2"), Probe)
	})
}

func TestMessagesInFlightAreIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRoutes(RoutesConfig{})
		r.Accept("e")
		wantState(t, "before", r, to("e", "1"), Shared)
		r.Isolate([]Message{*to("e", "1"), *to("e", "2")})
		wantState(t, "in flight", r, to("e", "1"), Isolated)
		wantState(t, "not in flight", r, to("e", "3"), Probe)
		r.Accept("e")
		r.EndIsolation(to("e", "1"))
		wantState(t, "after its answer", r, to("e", "1"), Shared)
		wantState(t, "before its answer", r, to("e", "2"), Isolated)
		time.Sleep(isolationTTL + time.Second)
		r.Isolate(nil)
		r.Accept("e")
		wantState(t, "long after", r, to("e", "2"), Shared)
	})
}

func TestStalledRouteHoldsBackIsolated(t *testing.T) {
	r := NewRoutes(RoutesConfig{})
	r.Accept("e")
	r.Unanswered(to("e", "0"))
	wantState(t, "the probe", r, to("e", "1"), Shared)
	if d := wantState(t, "beside the probe", r, to("e", "2"), Stalled); !errors.Is(d.Err, ErrStalled) {
		t.Errorf("held back because of %v", d.Err)
	}
	r.Isolate([]Message{*to("e", "3")})
	wantState(t, "isolated beside the probe", r, to("e", "3"), Stalled)
	r.ResetStalled()
	wantState(t, "after an alarm", r, to("e", "3"), Isolated)
}

func TestResetForgetsAndWakes(t *testing.T) {
	r := NewRoutes(RoutesConfig{})
	wantState(t, "first", r, to("e", "1"), Probe)
	pending := wantState(t, "second", r, to("e", "2"), Pending)
	r.Accept("known")
	r.Isolate([]Message{*to("x", "3")})
	r.Unanswered(to("known", "4"))
	r.Reset()
	if !ended(pending.ProbeEnded) {
		t.Error("the pending message is not woken")
	}
	for _, m := range []*Message{to("e", "2"), to("known", "5"), to("x", "3")} {
		wantState(t, "after the reset", r, m, Probe)
	}
}

func TestExchangesAreBounded(t *testing.T) {
	r := NewRoutes(RoutesConfig{})
	probe := wantState(t, "first", r, to("probed", "1"), Probe)
	if probe.ProbeEnded != nil {
		t.Error("a probe waits for a probe")
	}
	for i := range 3 * maxExchanges {
		r.Accept(fmt.Sprint(i))
	}
	if n := len(r.exchanges); n > maxExchanges {
		t.Errorf("%d exchanges are remembered", n)
	}
	wantState(t, "after the others are forgotten", r, to("probed", "2"), Pending)
}
