package simulation

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// observeStream notes the answers over streams, and lets faults change them.
func (s *service) observeStream( //nolint:revive // grpc.StreamClientInterceptor has these parameters
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
	options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, options...)
	if err != nil || method != pb.MessageHandlerService_Attend_FullMethodName {
		return stream, err
	}
	return &observed{
		ClientStream: stream, service: s, questions: map[uint64]any{}, sending: make(chan struct{}, 1),
	}, nil
}

// observed is a stream of Attend at its producer.
type observed struct {
	grpc.ClientStream
	service *service
	// sending has room for the one goroutine that sends. A mutex would stop the clock of the bubble.
	sending chan struct{}

	mu sync.Mutex
	// questions are those without an answer, by their ids.
	questions map[uint64]any
}

// RecvMsg implements grpc.ClientStream.
func (o *observed) RecvMsg(m any) error {
	err := o.ClientStream.RecvMsg(m)
	if r, is := m.(*pb.AttendResponse); is && err == nil {
		var in any
		switch q := r.GetQuestion(); {
		case q.GetConfirm() != nil:
			in = q.GetConfirm()
		case q.GetDeleteBusiness() != nil:
			in = q.GetDeleteBusiness()
		default:
			return nil
		}
		o.mu.Lock()
		o.questions[r.GetQuestion().GetId()] = in
		o.mu.Unlock()
	}
	return err
}

// SendMsg implements grpc.ClientStream. An answer may come late, so it does not hold up the next one.
func (o *observed) SendMsg(m any) error {
	r, _ := m.(*pb.AttendRequest)
	answer := r.GetAnswer()
	if answer == nil {
		return o.send(m)
	}
	o.service.world.goInBackground(func() {
		_ = o.send(&pb.AttendRequest{Kind: &pb.AttendRequest_Answer{Answer: o.change(answer)}}) // the receiver has the error
	})
	return nil
}

func (o *observed) send(m any) error {
	o.sending <- struct{}{}
	defer func() { <-o.sending }()
	return o.ClientStream.SendMsg(m)
}

// change lets faults change an answer, as for producers that are called.
func (o *observed) change(answer *pb.AttendAnswer) *pb.AttendAnswer {
	o.mu.Lock()
	in := o.questions[answer.GetId()]
	delete(o.questions, answer.GetId())
	o.mu.Unlock()
	out, err := o.service.answer(o.Context(), in, nil, func(context.Context, any) (any, error) {
		switch kind := answer.GetAnswer().(type) {
		case *pb.AttendAnswer_Confirm:
			return kind.Confirm, nil
		case *pb.AttendAnswer_DeleteBusiness:
			return kind.DeleteBusiness, nil
		}
		failure := answer.GetFailure()
		return nil, status.Error(codes.Code(failure.GetCode()), failure.GetMessage())
	})
	changed := &pb.AttendAnswer{Id: answer.GetId(), Answer: answer.GetAnswer()}
	switch out := out.(type) {
	case *pb.ConfirmResponse:
		changed.Answer = &pb.AttendAnswer_Confirm{Confirm: out}
	case *pb.DeleteBusinessResponse:
		changed.Answer = &pb.AttendAnswer_DeleteBusiness{DeleteBusiness: out}
	}
	if failed := status.Convert(err); err != nil {
		changed.Answer = &pb.AttendAnswer_Failure{Failure: &pb.AttendFailure{
			Code: int32(failed.Code()), Message: failed.Message(),
		}}
	}
	return changed
}
