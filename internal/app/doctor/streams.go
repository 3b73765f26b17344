package doctor

import (
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// streams asks producers that attend, through a coordinator: only coordinators have their streams. The first question
// opens the connection.
type streams struct {
	dial func() (*grpc.ClientConn, error)

	mu   sync.Mutex
	conn *grpc.ClientConn
	// refused is the last error of the coordinator itself, which says nothing of a producer.
	refused error
}

// newStreams makes the way to producers that attend. Close must follow.
func (e *Examination) newStreams() *streams { return &streams{dial: e.dial} }

// Close ends the connection to the coordinator.
func (s *streams) Close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

// admin is the coordinator.
func (s *streams) admin() (adminv1.AdminServiceClient, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		conn, err := s.dial()
		if err != nil {
			return nil, err
		}
		s.conn = conn
	}
	return adminv1.NewAdminServiceClient(s.conn), nil
}

// client is the service of a producer that attends.
func (s *streams) client(producer string) pb.ProducerServiceClient { return attendant{s, producer} }

// refusal is the last error of the coordinator itself; nil where it asks.
func (s *streams) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// ask has the coordinator ask. A failure of the producer is an error as from a call of the producer.
func (s *streams) ask(ctx context.Context, r *adminv1.AskProducerRequest) (*adminv1.AskProducerResponse, error) {
	admin, err := s.admin()
	var answer *adminv1.AskProducerResponse
	if err == nil {
		answer, err = admin.AskProducer(ctx, r)
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused = err
		return nil, err
	}
	if failure := answer.GetFailure(); failure != nil {
		return nil, status.Error(codes.Code(failure.GetCode()), failure.GetMessage()) //nolint:gosec // a code of gRPC
	}
	return answer, nil
}

// attendant implements pb.ProducerServiceClient.
type attendant struct {
	streams  *streams
	producer string
}

// Confirm implements pb.ProducerServiceClient.
func (a attendant) Confirm(
	ctx context.Context, r *pb.ConfirmRequest, _ ...grpc.CallOption,
) (*pb.ConfirmResponse, error) {
	answer, err := a.streams.ask(ctx, &adminv1.AskProducerRequest{
		Producer: a.producer, Question: &adminv1.AskProducerRequest_Confirm{Confirm: r},
	})
	return answer.GetConfirm(), err
}

// DeleteBusiness implements pb.ProducerServiceClient.
func (a attendant) DeleteBusiness(
	ctx context.Context, r *pb.DeleteBusinessRequest, _ ...grpc.CallOption,
) (*pb.DeleteBusinessResponse, error) {
	answer, err := a.streams.ask(ctx, &adminv1.AskProducerRequest{
		Producer: a.producer, Question: &adminv1.AskProducerRequest_DeleteBusiness{DeleteBusiness: r},
	})
	return answer.GetDeleteBusiness(), err
}

// attends says whether a target is that of a producer that attends.
func attends(to halfmsg.Target) bool { return strings.HasPrefix(to.Address, halfmsg.AttendScheme) }

// place says where a producer answers.
func place(to halfmsg.Target) string {
	if attends(to) {
		return "over its stream"
	}
	return "at " + to.Address
}

// attendingTargets are the producers that attend and have no known target: at most maxPendingTargets, and the number of
// all.
func (e *Examination) attendingTargets(
	ctx context.Context, known []halfmsg.Target,
) (targets []halfmsg.Target, all int) {
	names := slices.DeleteFunc(slices.Clone(e.statsOf(ctx).GetAttendingProducers()), func(name string) bool {
		return slices.ContainsFunc(known, func(to halfmsg.Target) bool { return to.Producer == name })
	})
	for _, name := range names[:min(len(names), maxPendingTargets)] {
		targets = append(targets, halfmsg.Target{Producer: name, Address: halfmsg.AttendTarget(name)})
	}
	return targets, len(names)
}

// statsOf are the counts of the coordinator, once it has been examined; nil where it gave none.
func (e *Examination) statsOf(ctx context.Context) *adminv1.GetStatsResponse {
	select {
	case <-e.seen.examined:
		return e.seen.stats
	case <-ctx.Done():
		return nil
	}
}
