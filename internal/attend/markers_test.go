package attend_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/attend"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// ofStore answers with a store.
func ofStore(store string) func(*pb.AttendQuestion) *pb.AttendAnswer {
	return func(q *pb.AttendQuestion) *pb.AttendAnswer {
		answer := committed(q)
		answer.GetConfirm().MarkerStore = store
		return answer
	}
}

// confirmOf asks about a message of a store, and returns the store that has answered, and how many verdicts it gave.
func (h *hub) confirmOf(t *testing.T, store string) (answered string, verdicts int) {
	t.Helper()
	r, err := h.Client("orders").Confirm(t.Context(),
		&pb.ConfirmRequest{Producer: "orders", Ids: []string{"1"}, MarkerStore: store})
	must.Succeed(t, err)
	return r.GetMarkerStore(), len(r.GetConfirmations())
}

// Questions of a store go to its streams and to those that name none, here and at another coordinator.
func TestQuestionsGoToTheirMarkerStore(t *testing.T) {
	t.Parallel()
	hubs := connected(t, servers.Redis(t).URL(), "one", "two")
	one, two := hubs[0], hubs[1]
	staging := one.replica(t, ofStore("staging"), "staging")
	one.replica(t, ofStore("staging"), "") // its hello does not say which store it has
	two.replica(t, ofStore("live"), "live")
	for range 4 {
		if store, verdicts := one.confirmOf(t, "live"); store != "live" || verdicts != 1 {
			t.Fatalf("%s answers with %d verdicts", store, verdicts)
		}
	}
	if n := len(staging.questions()); n != 0 {
		t.Errorf("the other store was asked %d times", n)
	}
	if store, verdicts := one.confirmOf(t, ""); store == "" || verdicts != 1 {
		t.Errorf("a message without a store: %s answers with %d verdicts", store, verdicts)
	}
}

// A replica without an identity cannot speak for a message that names a store: the question goes on to one that can.
func TestAnswerWithoutIdentityEndsNoQuestion(t *testing.T) {
	t.Parallel()
	h := connected(t, servers.Redis(t).URL(), "one")[0]
	for range 5 { // more than a question's rounds
		h.replica(t, ofStore(""), "")
	}
	if store, verdicts := h.confirmOf(t, "live"); store != "" || verdicts != 0 {
		t.Errorf("%q answers with %d verdicts", store, verdicts)
	}
	h.replica(t, ofStore("live"), "live")
	for range 6 {
		if store, verdicts := h.confirmOf(t, "live"); store != "live" || verdicts != 1 {
			t.Fatalf("%q answers with %d verdicts", store, verdicts)
		}
	}
}

// The answer names the other store, and has no verdict, wherever its stream is.
func TestOtherMarkerStoreGivesNoVerdict(t *testing.T) {
	t.Parallel()
	hubs := connected(t, servers.Redis(t).URL(), "one", "two")
	other := hubs[1].replica(t, ofStore("staging"), "staging")
	for _, h := range hubs {
		if store, verdicts := h.confirmOf(t, "live"); store != "staging" || verdicts != 0 {
			t.Errorf("%s: %s answers with %d verdicts", h.name, store, verdicts)
		}
		_, err := h.Client("orders").DeleteBusiness(t.Context(),
			&pb.DeleteBusinessRequest{Producer: "orders", Ids: []string{"1"}, MarkerStore: "live"})
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: markers are deleted elsewhere: %v", h.name, err)
		}
	}
	if n := len(other.questions()); n != 0 {
		t.Errorf("the other store was asked %d times", n)
	}
}

func TestReplicasWithMarkersOfTheirOwn(t *testing.T) {
	t.Parallel()
	own := func(store string) attend.Hello { return attend.Hello{MarkerStore: store, OwnMarkers: true} }
	shared := func(store string) attend.Hello { return attend.Hello{MarkerStore: store} }
	for _, tc := range []struct {
		name       string
		first, new attend.Hello
		split      bool
	}{
		{"one process", own("a"), own("a"), false},
		{"two processes", own("a"), own("b"), true},
		{"beside shared markers", shared("a"), own("b"), true},
		{"two databases", shared("a"), shared("b"), false},
		{"not known", shared("a"), own(""), false},
	} {
		split := false
		h := attend.New(attend.Config{
			Instance: "one", Streams: 2, PerProducer: 2, Split: func(string, string, string) { split = true },
		})
		for _, hello := range []attend.Hello{tc.first, tc.new} {
			hello.Producer, hello.Parallel = "orders", 1
			if _, err := h.Join(t.Context(), hello); err != nil {
				t.Fatal(err)
			}
		}
		if split != tc.split {
			t.Errorf("%s: reported: %v", tc.name, split)
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
