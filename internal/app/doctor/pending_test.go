package doctor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/app/doctor"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// The doctor asks the producers that pending messages name, a bounded number of them, and only those that a
// configuration allows.
func TestProducersOfPendingMessagesAreAsked(t *testing.T) {
	t.Parallel()
	s := newSite(t, servers.RabbitMQ(t).URL)
	target := other{confirm: say(pb.Verdict_VERDICT_UNKNOWN)}.serve(t)
	api := pb.NewMessageHandlerServiceClient(s.dial())
	for i := range 25 {
		if _, err := api.SendHalfMessage(t.Context(), &pb.SendHalfMessageRequest{
			Producer: fmt.Sprintf("pending-%02d", i), CallbackTarget: target, ConfirmAfter: durationpb.New(time.Hour),
			Message: &pb.Message{Id: "1", RoutingKey: "nowhere"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	ofPending := func() (asked int, bounded bool) {
		for _, f := range doctor.Examine(t.Context(), s.e) {
			if strings.HasPrefix(f.Area, "producer pending-") && f.Severity == doctor.OK {
				asked++
			}
			bounded = bounded || f.Name == "producers-unasked"
		}
		return asked, bounded
	}
	if asked, bounded := ofPending(); asked != 20 || !bounded {
		t.Errorf("%d producers of pending messages were asked; more are known: %t", asked, bounded)
	}
	delete(s.e.Settings.Producers, "orders")
	s.e.Settings.Callbacks.Allow = []string{"127.0.0.2:*"}
	forbidden := func(f doctor.Finding) bool {
		return strings.HasPrefix(f.Area, "producer pending-") && f.Name == "producer-forbidden"
	}
	if !slices.ContainsFunc(doctor.Examine(t.Context(), s.e), forbidden) {
		t.Error("a forbidden target of a pending message is no finding")
	}
	s.e.Defaults = doctor.Sections()
	if asked, _ := ofPending(); asked != 0 {
		t.Errorf("%d producers were asked without an allow-list", asked)
	}
}
