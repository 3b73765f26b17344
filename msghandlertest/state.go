package msghandlertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/producer"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// operators is the admin service of the coordinator that runs.
func (c *Coordinator) operators() (adminv1.AdminServiceClient, error) {
	conn, err := c.front.running()
	if err != nil {
		return nil, err
	}
	return adminv1.NewAdminServiceClient(conn), nil
}

func (c *Coordinator) admin(t testing.TB) adminv1.AdminServiceClient {
	t.Helper()
	api, err := c.operators()
	if err != nil {
		t.Fatal("msghandlertest: the coordinator is killed; call Restart first")
	}
	return api
}

// WaitIdle waits until no call of a producer is under way, and until the fate of every message is decided: DONE,
// ROLLED_BACK, ABANDONED or DEAD. The test fails when a message is still PENDING or SENDABLE after WithTimeout, 10 s by
// default; the failure names the message and its last error. A message with a delay is SENDABLE until then: call
// Advance before. WaitIdle does not know what the coordinator has not seen: a Send that still waits for a connection,
// or the rows of an outbox. Let the test's own goroutines end first.
func (c *Coordinator) WaitIdle(t testing.TB) {
	t.Helper()
	api := c.admin(t)
	decided := func(ctx context.Context) error {
		if err := c.front.busy(); err != nil {
			return err
		}
		stats, err := api.GetStats(ctx, &adminv1.GetStatsRequest{})
		if err != nil {
			return err
		}
		for _, s := range stats.GetStates() {
			if s.GetCount() > 0 && undecided(s.GetState()) {
				return fmt.Errorf("%d messages are %v", s.GetCount(), s.GetState())
			}
		}
		return nil
	}
	if err := await(c.options.timeout, "every message is decided", decided); err != nil {
		t.Fatalf("msghandlertest: %v\n%s", err, c.unpublished())
	}
}

// undecided says whether a message in a state still goes on by itself.
func undecided(state producer.State) bool {
	return state == producer.StatePending || state == producer.StateSendable || state == pb.State_STATE_ACKNOWLEDGED
}

// most is how many messages a failure names of a state.
const most = 5

// inState names the first messages of a state.
func inState(ctx context.Context, api adminv1.AdminServiceClient, state producer.State) error {
	page, err := api.ListMessages(ctx, &adminv1.ListMessagesRequest{
		Filter:   &adminv1.MessageFilter{State: state},
		PageSize: most,
	})
	if err != nil {
		return err
	}
	failed := []error{fmt.Errorf("messages are %v", state)}
	for _, r := range page.GetRecords() {
		failed = append(failed, fmt.Errorf("%s/%s, due %v: %s", r.GetProducer(), r.GetMessage().GetId(),
			r.GetDueTime().AsTime(), cmp.Or(r.GetLastError(), "no error")))
	}
	return errors.Join(failed...)
}

// unpublished names messages that are not published, with their states: the reason why a test waits in vain.
func (c *Coordinator) unpublished() string {
	api, err := c.operators()
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaseTime)
	defer cancel()
	stats, err := api.GetStats(ctx, &adminv1.GetStatsRequest{})
	if err != nil {
		return "the states of the messages are not known: " + err.Error()
	}
	var waiting []error
	for _, s := range stats.GetStates() {
		if s.GetCount() > 0 {
			waiting = append(waiting, inState(ctx, api, s.GetState()))
		}
	}
	if len(waiting) == 0 {
		return "the coordinator holds no other message: all others are rolled back, or were never sent"
	}
	return errors.Join(waiting...).Error()
}

// leased returns an error while a call is under way or a message has a lease.
func (c *Coordinator) leased(ctx context.Context, api adminv1.AdminServiceClient) error {
	if err := c.front.busy(); err != nil {
		return err
	}
	for _, state := range []producer.State{producer.StatePending, producer.StateSendable} {
		page, err := api.ListMessages(ctx, &adminv1.ListMessagesRequest{
			Filter:   &adminv1.MessageFilter{State: state},
			PageSize: 1000,
		})
		if err != nil {
			return err
		}
		for _, r := range page.GetRecords() {
			if r.GetLeaseOwner() != "" {
				return fmt.Errorf("%s/%s has a lease", r.GetProducer(), r.GetMessage().GetId())
			}
		}
	}
	return nil
}

// State is where a message stands, by its producer's name and its id; 0 when the coordinator knows no such message.
func (c *Coordinator) State(t testing.TB, producerName, id string) producer.State {
	t.Helper()
	answer, err := c.admin(t).GetMessage(context.Background(), &adminv1.GetMessageRequest{Producer: producerName, Id: id})
	if err != nil && status.Code(err) != codes.NotFound {
		t.Fatalf("msghandlertest: state of %s/%s: %v", producerName, id, err)
	}
	return answer.GetRecord().GetState()
}

// WaitState waits until a message is in a state. The test fails when it is not within WithTimeout, 10 s by default.
func (c *Coordinator) WaitState(t testing.TB, producerName, id string, want producer.State) {
	t.Helper()
	c.until(t, fmt.Sprintf("%s/%s is %v", producerName, id, want), func(context.Context) error {
		if is := c.State(t, producerName, id); is != want {
			return fmt.Errorf("it is %v", is)
		}
		return nil
	})
}

// Retry does what the command msghandler retry does: the coordinator asks the producer about PENDING and ABANDONED
// messages now, and publishes SENDABLE and DEAD messages now. Retry does not wait for either.
func (c *Coordinator) Retry(t testing.TB, producerName string, ids ...string) {
	t.Helper()
	selected := &adminv1.MessageSelection{}
	request := &adminv1.RetryMessagesRequest{Selection: selected, Reason: "msghandlertest"}
	for _, id := range ids {
		selected.Names = append(selected.Names, &adminv1.MessageName{Producer: producerName, Id: id})
	}
	answer, err := c.admin(t).RetryMessages(context.Background(), request)
	if err != nil {
		t.Fatalf("msghandlertest: Retry: %v", err)
	}
	for n, o := range answer.GetOutcomes() {
		if o.GetCode() != 0 {
			t.Errorf("msghandlertest: Retry of %s/%s: %s", producerName, ids[n], o.GetError())
		}
	}
}
