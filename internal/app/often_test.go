package app_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/config"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// An id that occurs several times in a batch gets the answers of sequential calls, on a real Redis too, whose scripts
// handle a few hundred ids each.
func TestRepeatedIDsInABatch(t *testing.T) {
	redis := servers.Redis(t)
	r := start(t, settings(func(c *config.Config) { c.Redis.URL = redis.URL() }))
	r.awaitReady(t)
	conn := dial(t, r.GRPCAddr())
	send := &msghandlerv1.SendHalfMessagesRequest{
		Producer: "away", CallbackTarget: nobodyAt(t), ConfirmAfter: durationpb.New(time.Hour),
	}
	var names []*adminv1.MessageName
	for i := range 1000 {
		send.Messages = append(send.Messages, &msghandlerv1.Message{Id: "1", RoutingKey: "paid", Body: fmt.Append(nil, i%3)})
		names = append(names, &adminv1.MessageName{Producer: "away", Id: "1"})
	}
	want := func(what string, outcomes []*msghandlerv1.Outcome, code func(i int) codes.Code) {
		t.Helper()
		if len(outcomes) != 1000 {
			t.Fatalf("%s: %d answers", what, len(outcomes))
		}
		for i, o := range outcomes {
			if codes.Code(o.GetCode()) != code(i) {
				t.Fatalf("%s, item %d: got %v, want %s", what, i, o, code(i))
			}
		}
	}

	sent, err := msghandlerv1.NewMessageHandlerServiceClient(conn).SendHalfMessages(t.Context(), send)
	must.Succeed(t, err)
	want("sent", sent.GetOutcomes(), func(i int) codes.Code {
		if i%3 == 0 {
			return codes.OK
		}
		return codes.AlreadyExists
	})
	admin := adminv1.NewAdminServiceClient(conn)
	retried, err := admin.RetryMessages(t.Context(), &adminv1.RetryMessagesRequest{
		Selection: &adminv1.MessageSelection{Names: names},
	})
	must.Succeed(t, err)
	want("retried", retried.GetOutcomes(), func(int) codes.Code { return codes.OK })
	discarded, err := admin.DiscardMessages(t.Context(), &adminv1.DiscardMessagesRequest{
		Selection: &adminv1.MessageSelection{Names: names},
	})
	if err != nil || discarded.GetChanged() != 1 {
		t.Fatalf("discarded %d: %v", discarded.GetChanged(), err)
	}
	want("discarded", discarded.GetOutcomes(), func(i int) codes.Code {
		if i == 0 {
			return codes.OK
		}
		return codes.NotFound
	})
}
