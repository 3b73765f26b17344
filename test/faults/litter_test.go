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

// hoarder never deletes a marker: each DeleteBusiness fails. The hoarder counts the deletions of each marker.
type hoarder struct {
	*plain
	mu    sync.Mutex
	tries map[string]int
}

// DeleteBusiness implements the service of a producer.
func (h *hoarder) DeleteBusiness(_ context.Context, r *pb.DeleteBusinessRequest) (*pb.DeleteBusinessResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range r.GetIds() {
		h.tries[id]++
	}
	return nil, status.Error(codes.Internal, "it keeps everything")
}

// marked is empty: the row itself looks for the remaining markers.
func (h *hoarder) marked(context.Context) ([]string, error) { return nil, nil }

// most is the highest number of deletions of one marker.
func (h *hoarder) most() (most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.tries {
		most = max(most, n)
	}
	return most
}

// keepsMarkers is a marker store without a working deletion.
type keepsMarkers struct{ *memory.Store }

func (keepsMarkers) Delete(context.Context, []string) error { return errors.New("it keeps everything") }

// hoardingSDK is the same with the SDK.
type hoardingSDK struct{ *service }

func (hoardingSDK) marked(context.Context) ([]string, error) { return nil, nil }

func hoardingUsers(w *world) []user {
	h := &hoarder{plain: connectPlain(w, "hoarder"), tries: map[string]int{}}
	h.answerWith(w, h)
	return []user{h, hoardingSDK{newService(w, "hoarding-sdk", keepsMarkers{memory.New()})}}
}

// deletionTries is how often the coordinators try to delete a marker.
const deletionTries = 5

// litterIsCounted waits until the coordinators have given up the first markers, after all their tries.
func litterIsCounted(t *testing.T, w *world, l *load, _ End) {
	t.Helper()
	h := userOf[*hoarder](t, l)
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
