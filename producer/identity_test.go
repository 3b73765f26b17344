package producer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// identified is a durable store that decides final questions, and whose identity a test changes.
type identified struct {
	*memory.Store
	identity string
	err      error
}

func (s *identified) Identity(context.Context) (string, error) { return s.identity, s.err }

func (s *identified) Lookup(ctx context.Context, ids []string, final bool) (map[string]marker.Verdict, error) {
	if final {
		return s.Put(ctx, ids, marker.RolledBack)
	}
	return s.Store.Lookup(ctx, ids, final)
}

func (s *identified) Capabilities() marker.Capabilities {
	return marker.Capabilities{SurvivesRestart: true, Shared: true, DecidesFinal: true}
}

func identifiedHouse(t *testing.T) (*house, *identified) {
	t.Helper()
	store := &identified{Store: memory.New(), identity: "live"}
	h := newHouse(t, func(c *producer.Config, _ *coordinator) { c.Markers = store })
	h.markers = store.Store
	return h, store
}

// Messages of another store are left alone: no tombstone, no deletion, and no answer that uses an attempt.
func TestOtherStoresMarkersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, store := identifiedHouse(t)
		if _, err := store.Put(t.Context(), []string{"kept"}, marker.Committed); err != nil {
			t.Fatal(err)
		}
		for _, final := range []bool{false, true} {
			r, err := h.producer.Confirm(t.Context(), &pb.ConfirmRequest{
				Producer: "orders", Ids: []string{"1", "kept"}, Final: final, MarkerStore: "other",
			})
			if err != nil || r.GetMarkerStore() != "live" || len(r.GetConfirmations()) != 2 ||
				r.GetConfirmations()[0].GetVerdict() != pb.Verdict_VERDICT_UNAVAILABLE ||
				r.GetConfirmations()[1].GetVerdict() != pb.Verdict_VERDICT_UNAVAILABLE {
				t.Errorf("final=%v: %v, %v", final, r, err)
			}
		}
		_, err := h.producer.DeleteBusiness(t.Context(), &pb.DeleteBusinessRequest{
			Producer: "orders", Ids: []string{"kept"}, MarkerStore: "other",
		})
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("deleted: %v", err)
		}
		if found, err := store.Store.Lookup(t.Context(), []string{"1", "kept"}, false); err != nil || len(found) != 1 {
			t.Errorf("the markers are %v, %v", found, err)
		}
	})
}

// Behind one address there may be another database by now, with a marker of the same id. No verdict of that one counts,
// no tombstone is planted there, and no marker deleted. When the first database is back, its verdicts count again.
func TestQuestionsReadTheIdentityAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, store := identifiedHouse(t)
		if _, err := store.Put(t.Context(), []string{"same"}, marker.Committed); err != nil {
			t.Fatal(err)
		}
		ask := func(final bool) *pb.ConfirmResponse {
			r, err := h.producer.Confirm(t.Context(), &pb.ConfirmRequest{
				Producer: "orders", Ids: []string{"same", "1"}, Final: final, MarkerStore: "live",
			})
			must(t, err)
			return r
		}
		ask(false)
		store.identity = "restored"
		for _, final := range []bool{false, true} {
			for _, c := range ask(final).GetConfirmations() {
				if c.GetVerdict() != pb.Verdict_VERDICT_UNAVAILABLE {
					t.Errorf("final=%v: the verdict of another store counts: %v", final, c)
				}
			}
		}
		_, err := h.producer.DeleteBusiness(t.Context(), &pb.DeleteBusinessRequest{
			Producer: "orders", Ids: []string{"same"}, MarkerStore: "live",
		})
		if status.Code(err) != codes.FailedPrecondition || store.Len() != 1 {
			t.Errorf("got %v, with %d markers", err, store.Len())
		}
		store.identity = "live"
		if r := ask(false); r.GetMarkerStore() != "live" ||
			r.GetConfirmations()[0].GetVerdict() == pb.Verdict_VERDICT_UNAVAILABLE {
			t.Errorf("the first store is back: %v", r)
		}
	})
}

// A message that named no store, because the store was away, would take any answer.
func TestSendWaitsForTheIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, store := identifiedHouse(t)
		store.err = errors.New("the database is away")
		err := h.p.Send(t.Context(), message("1"), func(context.Context) error { return nil })
		if !errors.Is(err, producer.ErrMarkers) || h.count("SendHalfMessages") != 0 {
			t.Errorf("got %v, calls %v", err, h.calls)
		}
	})
}
