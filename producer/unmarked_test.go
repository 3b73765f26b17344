package producer_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// inTransaction is a store whose markers the businesses leave themselves. The store may be unavailable.
type inTransaction struct {
	marker.Store
	away atomic.Bool
}

func (s *inTransaction) Capabilities() marker.Capabilities {
	return marker.Capabilities{SurvivesRestart: true, InTransaction: true}
}

func (s *inTransaction) Lookup(ctx context.Context, ids []string, final bool) (map[string]marker.Verdict, error) {
	if s.away.Load() {
		return nil, errors.New("database away")
	}
	return s.Store.Lookup(ctx, ids, final)
}

// inTransactionHouse is a house with such a store; leave returns a business that leaves its marker.
func inTransactionHouse(t *testing.T) (
	h *house, store *inTransaction, leave func(id string) func(context.Context) error,
) {
	h = newHouse(t, func(c *producer.Config, coordinator *coordinator) {
		store = &inTransaction{Store: c.Markers}
		c.Markers, coordinator.confirms = store, true
	})
	return h, store, func(id string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := h.markers.Put(ctx, []string{id}, marker.Committed)
			return err
		}
	}
}

func TestUnmarkedSendReturnsErrUnmarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, leave := inTransactionHouse(t)
		if err := h.p.Send(t.Context(), message("marked"), leave("marked")); err != nil {
			t.Errorf("a business with its marker: %v", err)
		}
		if err := h.p.Send(t.Context(), message("unmarked"), commits); !errors.Is(err, producer.ErrUnmarked) {
			t.Errorf("a business without a marker: %v", err)
		}
		synctest.Wait()
		// The business has committed, so its message goes out.
		if got := slices.Sorted(slices.Values(h.delivered)); !slices.Equal(got, []string{"marked", "unmarked"}) {
			t.Errorf("delivered %v", got)
		}
	})
}

func TestUnmarkedSubmitReturnsErrUnmarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, leave := inTransactionHouse(t)
		for _, id := range []string{"marked", "unmarked"} {
			if state, err := h.p.SendHalf(t.Context(), message(id)); state != producer.StatePending || err != nil {
				t.Fatal(state, err)
			}
		}
		must(t, leave("marked")(t.Context()))
		if _, err := h.p.Submit(t.Context(), "marked"); err != nil {
			t.Errorf("with its marker: %v", err)
		}
		if _, err := h.p.Submit(t.Context(), "unmarked"); !errors.Is(err, producer.ErrUnmarked) {
			t.Errorf("without: %v", err)
		}
		synctest.Wait()
		if got := h.state("unmarked"); got != pb.State_STATE_DONE {
			t.Errorf("its message is %v", got)
		}
	})
}

func TestMarkerLostInOutageIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, store, _ := inTransactionHouse(t)
		h.confirms = false // so that no marker is deleted meanwhile
		err := h.p.Send(t.Context(), message("1001"), func(context.Context) error {
			store.away.Store(true)
			return nil
		})
		if err != nil {
			t.Errorf("the outcome was unknown by then: %v", err)
		}
		synctest.Wait()
		store.away.Store(false)
		time.Sleep(time.Minute) // of the bubble: the store is tried again
		synctest.Wait()
		if lines := h.log.all(); !slices.Contains(lines, "ERROR a committed business left no marker in its transaction") {
			t.Errorf("said %q", lines)
		}
	})
}
