package msghandlertest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/producer"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// admin is the admin service of the coordinator that runs.
func (c *Coordinator) admin(t testing.TB) pb.AdminServiceClient {
	t.Helper()
	conn, err := c.front.running()
	if err != nil {
		t.Fatal("msghandlertest: the coordinator is killed; call Restart first")
	}
	return pb.NewAdminServiceClient(conn)
}

// Settle waits until no call of a producer is under way, and until the fate of every message is decided: DONE,
// ROLLED_BACK, ABANDONED or DEAD. The test fails when a message is still PENDING or SENDABLE after Patience, 10 s by
// default; the failure names the message and its last error. A message with a delay is SENDABLE until then: call
// Advance before. What a producer keeps in its own database and has not handed over yet, such as the rows of an outbox,
// Settle cannot know.
func (c *Coordinator) Settle(t testing.TB) {
	t.Helper()
	api := c.admin(t)
	c.until(t, "every message is decided", func(ctx context.Context) error {
		if n := c.front.calls.Load(); n > 0 {
			return fmt.Errorf("%d calls are under way", n)
		}
		stats, err := api.GetStats(ctx, &pb.GetStatsRequest{})
		if err != nil {
			return err
		}
		for _, s := range stats.GetStates() {
			if s.GetCount() > 0 && undecided(s.GetState()) {
				return unsettled(ctx, api, s.GetState())
			}
		}
		return nil
	})
}

// undecided says whether a message in a state still goes on by itself.
func undecided(state producer.State) bool {
	return state == producer.StatePending || state == producer.StateSendable || state == pb.State_STATE_ACKNOWLEDGED
}

// unsettled names the first messages of a state.
func unsettled(ctx context.Context, api pb.AdminServiceClient, state producer.State) error {
	page, err := api.ListMessages(ctx, &pb.ListMessagesRequest{State: state, PageSize: 5})
	if err != nil {
		return err
	}
	failed := []error{fmt.Errorf("messages are %v", state)}
	for _, r := range page.GetRecords() {
		failed = append(failed, fmt.Errorf("%s/%s, due %v: %s", r.GetProducer(), r.GetMessage().GetId(),
			r.GetDueTime().AsTime(), r.GetLastError()))
	}
	return errors.Join(failed...)
}

// State is where a message stands, by its producer's name and its id; 0 when the coordinator knows no such message.
func (c *Coordinator) State(t testing.TB, producerName, id string) producer.State {
	t.Helper()
	answer, err := c.admin(t).GetMessage(context.Background(), &pb.GetMessageRequest{Producer: producerName, Id: id})
	if err != nil && status.Code(err) != codes.NotFound {
		t.Fatalf("msghandlertest: state of %s/%s: %v", producerName, id, err)
	}
	return answer.GetRecord().GetState()
}

// WaitState waits until a message is in a state. The test fails when it is not within Patience, 10 s by default.
func (c *Coordinator) WaitState(t testing.TB, producerName, id string, want producer.State) {
	t.Helper()
	c.until(t, fmt.Sprintf("%s/%s is %v", producerName, id, want), func(context.Context) error {
		if is := c.State(t, producerName, id); is != want {
			return fmt.Errorf("it is %v", is)
		}
		return nil
	})
}

// ConfirmNow has the coordinator ask the producer about PENDING messages now, and publish SENDABLE ones now, as an
// operator's retry does. It does not wait for the answer.
func (c *Coordinator) ConfirmNow(t testing.TB, producerName string, ids ...string) {
	t.Helper()
	request := &pb.RetryMessagesRequest{Reason: "msghandlertest"}
	for _, id := range ids {
		request.Names = append(request.Names, &pb.MessageName{Producer: producerName, Id: id})
	}
	answer, err := c.admin(t).RetryMessages(context.Background(), request)
	if err != nil {
		t.Fatalf("msghandlertest: ConfirmNow: %v", err)
	}
	for n, o := range answer.GetOutcomes() {
		if o.GetCode() != 0 {
			t.Errorf("msghandlertest: ConfirmNow of %s/%s: %s", producerName, ids[n], o.GetError())
		}
	}
}
