package app_test

import (
	"context"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/config"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

type attending = grpc.BidiStreamingClient[msghandlerv1.AttendRequest, msghandlerv1.AttendResponse]

// attend opens a stream of a replica of orders, and waits for the welcome.
func attend(t *testing.T, r *running) attending {
	t.Helper()
	stream, err := r.producers(t).Attend(t.Context())
	if err == nil {
		err = stream.Send(&msghandlerv1.AttendRequest{Kind: &msghandlerv1.AttendRequest_Hello{
			Hello: &msghandlerv1.AttendHello{Producer: "orders", Instance: t.Name()},
		}})
	}
	must.Succeed(t, err)
	if r, err := stream.Recv(); err != nil || r.GetWelcome().GetInstance() == "" {
		t.Fatalf("instead of a welcome: %v, %v", r, err)
	}
	return stream
}

// answerOf is the answer that everything has committed.
func answerOf(q *msghandlerv1.AttendQuestion) *msghandlerv1.AttendRequest {
	answer := &msghandlerv1.AttendAnswer{Id: q.GetId()}
	if q.GetConfirm() == nil {
		answer.Answer = &msghandlerv1.AttendAnswer_DeleteBusiness{DeleteBusiness: &msghandlerv1.DeleteBusinessResponse{}}
	} else {
		confirm := &msghandlerv1.ConfirmResponse{}
		for _, id := range q.GetConfirm().GetIds() {
			confirm.Confirmations = append(confirm.Confirmations,
				&msghandlerv1.Confirmation{Id: id, Verdict: msghandlerv1.Verdict_VERDICT_COMMITTED})
		}
		answer.Answer = &msghandlerv1.AttendAnswer_Confirm{Confirm: confirm}
	}
	return &msghandlerv1.AttendRequest{Kind: &msghandlerv1.AttendRequest_Answer{Answer: answer}}
}

// answerAll answers all questions until the stream ends, and returns its error.
func answerAll(stream attending) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if q := r.GetQuestion(); q != nil {
			if err := stream.Send(answerOf(q)); err != nil {
				return err
			}
		}
	}
}

// twoCoordinators run on one Redis, and dial nothing.
func twoCoordinators(t *testing.T, change ...func(*config.Config)) (one, two *running) {
	t.Helper()
	url := servers.Redis(t).URL()
	change = append(change, func(c *config.Config) {
		c.Redis.URL, c.Redis.AllowUnsafe, c.Callbacks.Allow = url, true, nil
		c.Shutdown.Grace = 20 * time.Second // a question to a coordinator that has just ended waits until it times out
	})
	one, two = start(t, settings(change...)), start(t, settings(change...))
	one.awaitReady(t)
	two.awaitReady(t)
	return one, two
}

func TestAQuestionFindsAStreamElsewhere(t *testing.T) {
	t.Parallel()
	one, two := twoCoordinators(t)
	client := msghandlerv1.NewMessageHandlerServiceClient(dial(t, two.GRPCAddr()))

	_, err := client.SendHalfMessage(t.Context(), half(&orders{}, "1"))
	if status.Code(err) != codes.Unavailable {
		t.Fatalf("without a stream: %v", err)
	}
	t.Log(err)

	stream := attend(t, one)
	ended := make(chan error, 1)
	go func() { ended <- answerAll(stream) }()
	servers.Eventually(t, 10*time.Second, "the other coordinator accepts the message", func() bool {
		_, err = client.SendHalfMessage(t.Context(), half(&orders{}, "1"))
		return err == nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := client.Submit(ctx, &msghandlerv1.SubmitRequest{
		Producer: "orders", Id: "1", Wait: msghandlerv1.Wait_WAIT_SENDABLE,
	})
	if err != nil || r.GetState() != msghandlerv1.State_STATE_SENDABLE {
		t.Fatalf("got %v, %v\n%s", r, err, two.log)
	}
	if err := one.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != io.EOF { //nolint:errorlint // gRPC never wraps it
		t.Errorf("the stream of a stopping coordinator ends with %v", err)
	}
}
