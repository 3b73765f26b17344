package producer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
)

func TestRepeatedSendFollowsTheState(t *testing.T) {
	for _, row := range []struct {
		name    string
		marker  marker.Verdict
		state   producer.State
		want    error
		submits int
	}{
		{"its outcome unknown", marker.Unknown, producer.StatePending, nil, 1},
		{"committed, the submit lost", marker.Committed, producer.StatePending, producer.ErrAlreadyCommitted, 1},
		{"committed and abandoned", marker.Committed, producer.StateAbandoned, producer.ErrAlreadyCommitted, 1},
		{"committed, the coordinator forgot", marker.Committed, 0, producer.ErrAlreadyCommitted, 1},
		{"confirmed", marker.Committed, producer.StateSendable, producer.ErrAlreadyCommitted, 0},
		{"delivered", marker.Unknown, producer.StateDone, producer.ErrAlreadyCommitted, 0},
		{"dead", marker.Unknown, producer.StateDead, producer.ErrAlreadyCommitted, 0},
		{"rolled back", marker.Unknown, producer.StateRolledBack, producer.ErrRolledBack, 0},
		{"the rollback was lost", marker.RolledBack, producer.StatePending, producer.ErrRolledBack, 0},
		{"abandoned", marker.Unknown, producer.StateAbandoned, producer.ErrAbandoned, 0},
		{"committed yet rolled back", marker.Committed, producer.StateRolledBack, producer.ErrContradicted, 0},
	} {
		inBubble(row.name, t, func(t *testing.T) {
			h := newHouse(t, nil)
			if row.state != 0 {
				if _, err := h.p.SendHalf(t.Context(), message("1001")); err != nil {
					t.Fatal(err)
				}
				h.setState("1001", row.state)
			}
			if row.marker.Definite() {
				if _, err := h.markers.Put(t.Context(), []string{"1001"}, row.marker); err != nil {
					t.Fatal(err)
				}
			}
			runs := 0
			err := h.p.Send(t.Context(), message("1001"), ran(&runs, nil))
			if !errors.Is(err, row.want) || (runs == 1) != (row.want == nil) {
				t.Errorf("got %v, %d runs", err, runs)
			}
			synctest.Wait()
			if h.count("SubmitAll") != row.submits || h.count("Rollback") != 0 {
				t.Errorf("calls %v", h.calls)
			}
		})
	}
}

func TestFailedRepeatKeepsAnEarlierCommit(t *testing.T) {
	duplicate := errors.New("duplicate key: order 1001 is paid")
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(c *producer.Config, _ *coordinator) {
			c.Resolve = func(context.Context, string, bool) (marker.Verdict, error) { return marker.Committed, nil }
		})
		runs := 0
		err := h.p.Send(t.Context(), message("1001"), ran(&runs, duplicate))
		if !errors.Is(err, producer.ErrAlreadyCommitted) || !errors.Is(err, duplicate) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if h.count("Rollback") != 0 || h.count("SubmitAll") != 1 {
			t.Errorf("calls %v", h.calls)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		err := h.p.Send(t.Context(), message("1001"), func(ctx context.Context) error {
			_, _ = h.markers.Put(ctx, []string{"1001"}, marker.Committed) // by another replica at the same time
			return duplicate
		})
		if !errors.Is(err, producer.ErrAlreadyCommitted) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if h.count("Rollback") != 0 || h.count("SubmitAll") != 1 {
			t.Errorf("calls %v", h.calls)
		}
	})
}

func TestLateRollbackLeavesNoWrongMarker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		declined := errors.New("card declined")
		err := h.p.Send(t.Context(), message("1001"), func(context.Context) error {
			h.setState("1001", producer.StateSendable) // another replica's run was confirmed
			return declined
		})
		if !errors.Is(err, producer.ErrAlreadyCommitted) || !errors.Is(err, declined) || h.markers.Len() != 0 {
			t.Errorf("got %v, %d markers", err, h.markers.Len())
		}
		h.setState("1002", producer.StateDone)
		err = h.p.Rollback(t.Context(), "1002", "by mistake")
		var failure *producer.Error
		if !errors.Is(err, producer.ErrAlreadyCommitted) || !errors.As(err, &failure) || h.markers.Len() != 0 {
			t.Fatalf("got %v, %d markers", err, h.markers.Len())
		}
		if failure.State != producer.StateDone || failure.Reason != "ILLEGAL" {
			t.Errorf("state %v, reason %q", failure.State, failure.Reason)
		}
	})
}

func TestOneSendOfIDAtTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		gate := make(chan struct{})
		first := make(chan error, 1)
		go func() {
			first <- h.p.Send(t.Context(), message("1001"), func(context.Context) error { <-gate; return nil })
		}()
		synctest.Wait()
		runs := 0
		err := h.p.Send(t.Context(), message("1001"), ran(&runs, nil))
		if !errors.Is(err, producer.ErrInFlight) || runs != 0 {
			t.Errorf("got %v", err)
		}
		close(gate)
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}
