package producer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// replyLost makes the coordinator store the first half message and lose its answer. The next call closes hung, and
// hangs until the gate is opened.
func replyLost(c *coordinator) (hung <-chan struct{}, gate chan<- struct{}) {
	hangs, opened := make(chan struct{}), make(chan struct{})
	c.fault = func(rpc string, n int) fault {
		switch {
		case rpc != "SendHalfMessages":
			return fault{}
		case n == 0:
			return fault{after: errLost}
		}
		close(hangs)
		return fault{hold: opened}
	}
	return hangs, opened
}

// A Send may be at its half message for longer than the coordinator takes to ask all its questions.
func TestConfirmDuringSendHalfIsUnavailable(t *testing.T) {
	for name, decides := range map[string]bool{"a store": false, "a store that decides": true} {
		inBubble(name, t, func(t *testing.T) {
			var hung <-chan struct{}
			var gate chan<- struct{}
			h := newHouse(t, func(c *producer.Config, co *coordinator) {
				c.Markers = &unruly{Store: memory.New(), fail: func(string) error { return nil }, decides: decides}
				c.Resolve = func(context.Context, string, bool) (marker.Verdict, error) { return marker.RolledBack, nil }
				hung, gate = replyLost(co)
			})
			runs, sent := 0, make(chan error)
			go func() { sent <- h.p.Send(t.Context(), message("1001"), ran(&runs, nil)) }()
			<-hung
			if state := h.state("1001"); state != pb.State_STATE_PENDING {
				t.Fatalf("the half message is %v", state)
			}
			for _, final := range []bool{false, true} {
				if v := h.verdict(t, "1001", final); v != pb.Verdict_VERDICT_UNAVAILABLE {
					t.Errorf("final=%v: %v", final, v)
				}
			}
			close(gate)
			if err := <-sent; err != nil || runs != 1 {
				t.Errorf("Send: %v, its business ran %d times", err, runs)
			}
			if v := h.verdict(t, "1001", false); v != pb.Verdict_VERDICT_COMMITTED {
				t.Errorf("afterwards: %v", v)
			}
		})
	}
}

// The coordinator asks about a stored half message of an ended Send like about any other.
func TestConfirmAfterAbandonedSendIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(_ *producer.Config, co *coordinator) {
			co.fault = func(string, int) fault { return fault{after: errLost} }
		})
		if err := h.p.Send(t.Context(), message("1001"), nil); !errors.Is(err, producer.ErrUnavailable) {
			t.Fatalf("Send: %v", err)
		}
		if v := h.verdict(t, "1001", false); v != pb.Verdict_VERDICT_UNKNOWN {
			t.Errorf("got %v", v)
		}
	})
}

func TestConfirmDuringSendReportsEarlierCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung <-chan struct{}
		var gate chan<- struct{}
		away := false
		h := newHouse(t, func(c *producer.Config, co *coordinator) {
			store := memory.New()
			if _, err := store.Put(t.Context(), []string{"1001"}, marker.Committed); err != nil {
				t.Fatal(err)
			}
			c.Markers = &unruly{Store: store, fail: func(string) error {
				if away {
					return errors.New("database away")
				}
				return nil
			}}
			hung, gate = replyLost(co)
		})
		again := make(chan error)
		go func() {
			_, err := h.p.SendHalf(t.Context(), message("1001"))
			again <- err
		}()
		<-hung
		if v := h.verdict(t, "1001", true); v != pb.Verdict_VERDICT_COMMITTED {
			t.Errorf("an id committed before is %v", v)
		}
		away = true
		if v := h.verdict(t, "1001", true); v != pb.Verdict_VERDICT_UNAVAILABLE {
			t.Errorf("while the marker store is away: %v", v)
		}
		close(gate)
		if err := <-again; err != nil {
			t.Error(err)
		}
	})
}
