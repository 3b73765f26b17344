package msghandlertest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// front is the API that producers call: it hands calls on to the coordinator that runs, and lets faults happen.
type front struct {
	pb.UnimplementedMessageHandlerServiceServer
	faults *faults
	// calls is how many calls are under way.
	calls atomic.Int64
	// streams are the goroutines of handOnCall.
	streams sync.WaitGroup

	mu   sync.Mutex
	conn *grpc.ClientConn
}

// to names the connection of the coordinator that runs; nil: none does.
func (f *front) to(conn *grpc.ClientConn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conn = conn
}

// running is the connection of the coordinator that runs.
func (f *front) running() (*grpc.ClientConn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn == nil {
		return nil, status.Error(codes.Unavailable, "the coordinator is killed")
	}
	return f.conn, nil
}

// api is the coordinator that runs.
func (f *front) api() (pb.MessageHandlerServiceClient, error) {
	conn, err := f.running()
	if err != nil {
		return nil, err
	}
	return pb.NewMessageHandlerServiceClient(conn), nil
}

// busy returns an error while calls are under way.
func (f *front) busy() error {
	if n := f.calls.Load(); n > 0 {
		return fmt.Errorf("%d calls are under way", n)
	}
	return nil
}

// handOn carries the metadata of the caller, such as its trace context.
func handOn(ctx context.Context) context.Context {
	in, _ := metadata.FromIncomingContext(ctx)
	return metadata.NewOutgoingContext(ctx, in.Copy())
}

const (
	refusedOnDemand = "msghandlertest refuses this call"
	answerLost      = "msghandlertest loses the answer of this call"
)

// refusal is the error of a refused call, with the details that the coordinator gives with codes that may pass.
func refusal(code codes.Code) error {
	st := status.New(code, refusedOnDemand)
	if code == codes.Unavailable || code == codes.ResourceExhausted {
		detailed, err := st.WithDetails(&errdetails.ErrorInfo{Reason: "MSGHANDLERTEST", Domain: "msghandler"},
			&errdetails.RetryInfo{RetryDelay: durationpb.New(50 * time.Millisecond)})
		if err == nil {
			st = detailed
		}
	}
	return st.Err()
}

// one lets the fault of a call about one message happen. do makes the call.
func (f *front) one(call Call, id string, do func(pb.MessageHandlerServiceClient) error) (ignored bool, err error) {
	f.calls.Add(1)
	defer f.calls.Add(-1)
	fault := f.faults.takeFault(call, id)
	switch fault.effect {
	case refuse:
		return false, refusal(fault.code)
	case ignore:
		return true, nil
	}
	api, err := f.api()
	if err == nil {
		err = do(api)
	}
	if fault.effect == loseResponse {
		err = status.Error(codes.Unavailable, answerLost)
	}
	return false, err
}

// many does the same for a batch: do makes the call for the messages at the given places, and returns their outcomes.
func (f *front) many(
	call Call, ids []string, do func(api pb.MessageHandlerServiceClient, places []int) ([]*pb.Outcome, error),
) ([]*pb.Outcome, error) {
	f.calls.Add(1)
	defer f.calls.Add(-1)
	outcomes, lost := make([]*pb.Outcome, len(ids)), false
	var places []int
	for i, id := range ids {
		switch fault := f.faults.takeFault(call, id); fault.effect {
		case refuse:
			outcomes[i] = &pb.Outcome{Code: int32(fault.code), Error: refusedOnDemand} //nolint:gosec // G115: codes are small
		case ignore:
			outcomes[i] = &pb.Outcome{State: pb.State_STATE_PENDING}
		case loseResponse:
			lost = true
			places = append(places, i)
		default:
			places = append(places, i)
		}
	}
	if len(places) > 0 || len(ids) == 0 {
		api, err := f.api()
		if err != nil {
			return nil, err
		}
		done, err := do(api, places)
		if err != nil {
			return nil, err
		}
		for n, i := range places {
			outcomes[i] = done[n]
		}
	}
	if lost {
		return nil, status.Error(codes.Unavailable, answerLost)
	}
	return outcomes, nil
}

// at returns the elements at the given places.
func at[T any](all []T, places []int) []T {
	picked := make([]T, len(places))
	for n, i := range places {
		picked[n] = all[i]
	}
	return picked
}

func (f *front) SendHalfMessage(
	ctx context.Context, r *pb.SendHalfMessageRequest,
) (answer *pb.SendHalfMessageResponse, err error) {
	ignored, err := f.one(SendHalfMessage, r.GetMessage().GetId(), func(api pb.MessageHandlerServiceClient) (err error) {
		answer, err = api.SendHalfMessage(handOn(ctx), r)
		return err
	})
	if ignored {
		answer = &pb.SendHalfMessageResponse{State: pb.State_STATE_PENDING}
	}
	return answer, err
}

func (f *front) SendHalfMessages(
	ctx context.Context, r *pb.SendHalfMessagesRequest,
) (*pb.SendHalfMessagesResponse, error) {
	ids := make([]string, len(r.GetMessages()))
	for i, m := range r.GetMessages() {
		ids[i] = m.GetId()
	}
	outcomes, err := f.many(SendHalfMessage, ids,
		func(api pb.MessageHandlerServiceClient, places []int) ([]*pb.Outcome, error) {
			answer, err := api.SendHalfMessages(handOn(ctx), &pb.SendHalfMessagesRequest{
				Producer: r.GetProducer(), CallbackTarget: r.GetCallbackTarget(), ConfirmAfter: r.GetConfirmAfter(),
				MarkerStore: r.GetMarkerStore(), Messages: at(r.GetMessages(), places),
			})
			return answer.GetOutcomes(), err
		})
	if err != nil {
		return nil, err
	}
	return &pb.SendHalfMessagesResponse{Outcomes: outcomes}, nil
}

func (f *front) Submit(ctx context.Context, r *pb.SubmitRequest) (answer *pb.SubmitResponse, err error) {
	ignored, err := f.one(Submit, r.GetId(), func(api pb.MessageHandlerServiceClient) (err error) {
		answer, err = api.Submit(handOn(ctx), r)
		return err
	})
	if ignored {
		answer = &pb.SubmitResponse{State: pb.State_STATE_PENDING}
	}
	return answer, err
}

func (f *front) SubmitAll(ctx context.Context, r *pb.SubmitAllRequest) (*pb.SubmitAllResponse, error) {
	outcomes, err := f.many(Submit, r.GetIds(),
		func(api pb.MessageHandlerServiceClient, places []int) ([]*pb.Outcome, error) {
			answer, err := api.SubmitAll(handOn(ctx), &pb.SubmitAllRequest{
				Producer: r.GetProducer(), Ids: at(r.GetIds(), places), Wait: r.GetWait(),
			})
			return answer.GetOutcomes(), err
		})
	if err != nil {
		return nil, err
	}
	return &pb.SubmitAllResponse{Outcomes: outcomes}, nil
}

func (f *front) Rollback(ctx context.Context, r *pb.RollbackRequest) (answer *pb.RollbackResponse, err error) {
	ignored, err := f.one(Rollback, r.GetId(), func(api pb.MessageHandlerServiceClient) (err error) {
		answer, err = api.Rollback(handOn(ctx), r)
		return err
	})
	if ignored {
		answer = &pb.RollbackResponse{State: pb.State_STATE_ROLLED_BACK}
	}
	return answer, err
}
