package server_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const probe = halfmsg.ProbePrefix + "1"

func confirming(final bool, ids ...string) *adminv1.AskProducerRequest {
	return &adminv1.AskProducerRequest{Producer: "orders", Question: &adminv1.AskProducerRequest_Confirm{
		Confirm: &msghandlerv1.ConfirmRequest{Producer: "orders", Ids: ids, Final: final},
	}}
}

func deleting(ids ...string) *adminv1.AskProducerRequest {
	return &adminv1.AskProducerRequest{Producer: "orders", Question: &adminv1.AskProducerRequest_DeleteBusiness{
		DeleteBusiness: &msghandlerv1.DeleteBusinessRequest{Producer: "orders", Ids: ids},
	}}
}

func TestOperatorAsksAttendingProducer(t *testing.T) {
	t.Parallel()
	hub, withHub := hubOf(10, 10)
	trail := &recorded{}
	h := open(t, withHub, func(c *server.Config) { c.ConfirmTimeout = 10 * time.Second }, trail.keep)
	answer, err := h.operators.AskProducer(t.Context(), confirming(false, probe))
	if f := answer.GetFailure(); err != nil || codes.Code(f.GetCode()) != codes.Unavailable ||
		!strings.Contains(f.GetMessage(), "no one attends as producer orders") {
		t.Errorf("without a stream: %v, %v", answer, err)
	}
	stream := h.attend(t, "orders")
	if got := hub.Producers(); len(got) != 1 || got[0] != "orders" {
		t.Errorf("attending are %v", got)
	}
	answered := make(chan error, 1)
	go func() {
		r, err := stream.Recv()
		if err == nil {
			err = stream.Send(&msghandlerv1.AttendRequest{Kind: &msghandlerv1.AttendRequest_Answer{
				Answer: &msghandlerv1.AttendAnswer{
					Id: r.GetQuestion().GetId(), Answer: &msghandlerv1.AttendAnswer_Confirm{Confirm: &msghandlerv1.ConfirmResponse{
						Confirmations: []*msghandlerv1.Confirmation{{Id: probe, Verdict: msghandlerv1.Verdict_VERDICT_ROLLED_BACK}},
					}},
				},
			}})
		}
		answered <- err
	}()
	answer, err = h.operators.AskProducer(t.Context(), confirming(true, probe))
	if all := answer.GetConfirm().GetConfirmations(); err != nil || len(all) != 1 || all[0].GetId() != probe {
		t.Errorf("got %v, %v", answer, err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	// Only the final question leaves something in the producer's database.
	if got := trail.records; len(got) != 1 || got[0].Action != audit.AskProducer || got[0].Result != audit.Done ||
		got[0].Producer != "orders" || len(got[0].Names) != 1 || got[0].Names[0] != "orders/"+probe {
		t.Errorf("the audit trail has %+v", got)
	}
}

// A final question about the id of a message would veto its transaction.
func TestOperatorsQuestionsHarmNoMessage(t *testing.T) {
	t.Parallel()
	_, withHub := hubOf(10, 10)
	h := open(t, withHub, func(c *server.Config) { c.ConfirmTimeout = time.Second })
	ofGiant, ofGiantStore, deletingOfGiant := confirming(false, probe), confirming(false, probe), deleting(probe)
	ofGiant.GetConfirm().Producer = strings.Repeat("a", 5<<20)
	ofGiantStore.GetConfirm().MarkerStore = strings.Repeat("a", 5<<20)
	deletingOfGiant.GetDeleteBusiness().Producer = strings.Repeat("a", 5<<20)
	for field, r := range map[string]*adminv1.AskProducerRequest{
		"question.producer is":     ofGiant,
		"question.marker_store is": ofGiantStore,
		"question.producer":        deletingOfGiant,
		"question":                 {Producer: "orders"},
		"producer":                 {Producer: "a b", Question: confirming(false).Question},
		"ids":                      confirming(true, probe, "1001"),
		"ids must":                 deleting("1001"),
		"ids has":                  confirming(false, make([]string, 501)...),
	} {
		_, err := h.operators.AskProducer(t.Context(), r)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestViewerAsksOnlyAboutProbes(t *testing.T) {
	t.Parallel()
	const method = adminv1.AdminService_AskProducer_FullMethodName
	for _, c := range []struct {
		request *adminv1.AskProducerRequest
		least   access.Role
	}{
		{confirming(false, probe), access.Viewer},
		{deleting(probe), access.Viewer},
		{confirming(false, probe, "1001"), access.Operator},
		{confirming(true, probe), access.Operator},
	} {
		for role := access.NoRole; role <= access.Admin; role++ {
			caller := access.Identity{Kind: access.Token, Name: "token:x", Role: role}
			if err := server.Permits(caller, method, c.request); (err == nil) != (role >= c.least) {
				t.Errorf("%v as %s: %v", c.request, role, err)
			}
		}
	}
}
