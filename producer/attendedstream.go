package producer

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// attendedStream is an open stream of Attend.
type attendedStream struct {
	attendance *attendance
	stream     grpc.BidiStreamingClient[pb.AttendRequest, pb.AttendResponse]
	end        context.CancelFunc
	// coordinator is the name of the other side; elsewhere says that another stream to it is open, so that this one should
	// be at another coordinator.
	coordinator string
	elsewhere   bool
	// away is closed when no more questions come: another stream is needed.
	away chan struct{}
	// answering has the goroutines that answer, at most as many as there is room in slots.
	answering sync.WaitGroup
	slots     chan struct{}
	// useful says that a question came.
	useful atomic.Bool

	mu sync.Mutex
	// left says that the go_away was sent, gone that away is closed.
	left, gone bool
}

// openStream opens a stream and waits for the welcome. The stream then runs in the background.
func (a *attendance) openStream() (*attendedStream, error) {
	ctx, cancel := context.WithCancel(a.ctx)
	hello := a.hello(ctx)
	late := time.AfterFunc(callTimeout, cancel)
	stopped := context.AfterFunc(a.opening, cancel)
	stream, err := a.producer.coordinator.Attend(ctx)
	if err == nil {
		_ = stream.Send(hello) // Recv has the error
	}
	var first *pb.AttendResponse
	if err == nil {
		first, err = stream.Recv()
	}
	if err == nil && first.GetWelcome() == nil {
		err = status.Error(codes.Internal, "the coordinator has not begun with a welcome")
	}
	switch inTime := late.Stop(); {
	case !stopped():
		err = ErrClosed
	case !inTime:
		err = status.Errorf(codes.DeadlineExceeded, "the coordinator has not welcomed the stream within %s", callTimeout)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	s := &attendedStream{
		attendance: a, stream: stream, end: cancel, away: make(chan struct{}), slots: make(chan struct{}, parallelAnswers),
	}
	s.elsewhere = a.enter(s, first.GetWelcome().GetInstance())
	a.closeSettled()
	a.attended.Go(s.run)
	return s, nil
}

// run answers questions until the coordinator ends the stream, or the stream breaks.
func (s *attendedStream) run() {
	defer s.end()
	defer s.answering.Wait()
	defer s.setAway()
	for {
		message, err := s.stream.Recv()
		if err != nil {
			return // another stream follows
		}
		switch kind := message.GetKind().(type) {
		case *pb.AttendResponse_Question:
			s.takeQuestion(kind.Question)
		case *pb.AttendResponse_GoAway:
			s.setAway()
		}
	}
}

// setAway has another stream opened.
func (s *attendedStream) setAway() {
	s.attendance.leave(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone {
		s.gone = true
		close(s.away)
	}
}

// leave asks the coordinator to ask no more and to end the stream.
func (s *attendedStream) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left {
		s.left = true
		_ = s.stream.Send(&pb.AttendRequest{Kind: &pb.AttendRequest_GoAway{GoAway: &pb.GoAway{}}}) // Recv has the error
	}
}

// takeQuestion answers a question in the background.
func (s *attendedStream) takeQuestion(q *pb.AttendQuestion) {
	s.useful.Store(true)
	select {
	case s.slots <- struct{}{}:
	default:
		s.send(failureOf(q, status.Error(codes.ResourceExhausted, "more questions than the hello allows")))
		return
	}
	s.answering.Go(func() {
		defer func() { <-s.slots }()
		var answer *pb.AttendAnswer
		if err := guard(func() error {
			answer = s.answer(q)
			return nil
		}); err != nil {
			answer = failureOf(q, status.Error(codes.Internal, "answering panicked"))
		}
		s.send(answer)
	})
}

func (s *attendedStream) send(answer *pb.AttendAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.stream.Send(&pb.AttendRequest{Kind: &pb.AttendRequest_Answer{Answer: answer}}) // Recv has the error
}

// answer finds the answer to a question, within its time. Who asks is the coordinator that this producer has connected
// to: Config.Coordinators is for callers from outside.
func (s *attendedStream) answer(q *pb.AttendQuestion) *pb.AttendAnswer {
	ctx, cancel := context.WithTimeout(s.attendance.ctx, q.GetTimeout().AsDuration())
	defer cancel()
	answer := &pb.AttendAnswer{Id: q.GetId()}
	switch question := q.GetQuestion().(type) {
	case *pb.AttendQuestion_Confirm:
		response, err := s.attendance.answers.confirm(ctx, question.Confirm)
		if err != nil {
			return failureOf(q, err)
		}
		answer.Answer = &pb.AttendAnswer_Confirm{Confirm: response}
	case *pb.AttendQuestion_DeleteBusiness:
		response, err := s.attendance.answers.deleteBusiness(ctx, question.DeleteBusiness)
		if err != nil {
			return failureOf(q, err)
		}
		answer.Answer = &pb.AttendAnswer_DeleteBusiness{DeleteBusiness: response}
	default:
		return failureOf(q, status.Error(codes.Unimplemented, "this version of the SDK does not know the question"))
	}
	return answer
}

// failureOf says why a question has no answer. Text that is not UTF-8 would break the stream.
func failureOf(q *pb.AttendQuestion, err error) *pb.AttendAnswer {
	st := status.Convert(err)
	text := st.Message()
	text = strings.ToValidUTF8(text[:min(len(text), maxFailure)], "")
	return &pb.AttendAnswer{Id: q.GetId(), Answer: &pb.AttendAnswer_Failure{Failure: &pb.AttendFailure{
		Code: int32(st.Code()), Message: text, //nolint:gosec // codes are small
	}}}
}
