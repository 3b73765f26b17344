package faults

import (
	"context"
	"errors"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// failingDeleter never deletes a marker: each DeleteBusiness fails. It counts the deletions of each
// marker.
type failingDeleter struct {
	*plain
	mu    sync.Mutex
	tries map[string]int
}

// DeleteBusiness implements the service of a producer.
func (h *failingDeleter) DeleteBusiness(
	_ context.Context, r *pb.DeleteBusinessRequest,
) (*pb.DeleteBusinessResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range r.GetIds() {
		h.tries[id]++
	}
	return nil, status.Error(codes.Internal, "no marker can be deleted")
}

// marked is empty: the row itself looks for the remaining markers.
func (h *failingDeleter) marked(context.Context) ([]string, error) { return nil, nil }

// most is the highest number of deletions of one marker.
func (h *failingDeleter) most() (most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.tries {
		most = max(most, n)
	}
	return most
}

// undeletableMarkers is a marker store without a working deletion.
type undeletableMarkers struct{ *memory.Store }

func (undeletableMarkers) Delete(context.Context, []string) error {
	return errors.New("no marker can be deleted")
}

// failingDeleterSDK is the same with the SDK.
type failingDeleterSDK struct{ *service }

func (failingDeleterSDK) marked(context.Context) ([]string, error) { return nil, nil }

func failingDeleters(w *world) []user {
	h := &failingDeleter{plain: connectPlain(w, "failing-deleter"), tries: map[string]int{}}
	h.answerWith(w, h)
	return []user{h, failingDeleterSDK{newService(w, "failing-deleter-sdk", undeletableMarkers{memory.New()})}}
}

// deletionTries is how often the coordinators try to delete a marker.
const deletionTries = 5

// leakedMarkersAreCounted waits until the coordinators have given up the first markers, after all their tries.
func leakedMarkersAreCounted(t *testing.T, w *world, l *load, _ End) {
	t.Helper()
	h := userOf[*failingDeleter](t, l)
	left := func() int { return w.counted(`msghandler_marker_deletions_total{result="left"}`) }
	servers.Eventually(t, patience, "markers are tried often enough, and left to their producer", func() bool {
		return left() > 0 && h.most() >= deletionTries
	})
	t.Logf("deletions: %d failed, %d markers left to their producer; the most tries of one marker were %d",
		w.counted(`msghandler_marker_deletions_total{result="failed"}`), left(), h.most())
	if h.most() > deletionTries {
		t.Errorf("the deletion of a marker was tried %d times", h.most())
	}
}
