package faults

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// stub is a producer in bulk and without the SDK: a stub sends half messages by the thousand, and gives prepared
// answers.
type stub struct {
	pb.UnimplementedProducerServiceServer
	w      *world
	name   string
	target string
	// answer gives the verdict about an id.
	answer func(ctx context.Context, id string, final bool) (pb.Verdict, error)
	// takes is how long each Confirm takes.
	takes time.Duration
	// calls counts the Confirm calls under way, and peak how many there were at most.
	calls, peak atomic.Int64

	serving sync.WaitGroup
	server  *grpc.Server
}

// newStub takes an address for the producer. The address is not served yet.
func newStub(w *world, name string, answer func(context.Context, string, bool) (pb.Verdict, error)) *stub {
	w.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer listener.Close()
	return &stub{w: w, name: name, target: listener.Addr().String(), answer: answer}
}

// committed is an answer: everything has.
func committed(context.Context, string, bool) (pb.Verdict, error) {
	return pb.Verdict_VERDICT_COMMITTED, nil
}

// serve answers at the stub's address until the test ends.
func (s *stub) serve() {
	s.w.t.Helper()
	listener, err := net.Listen("tcp", s.target)
	if err != nil {
		s.w.t.Fatal(err)
	}
	s.server = grpc.NewServer()
	pb.RegisterProducerServiceServer(s.server, s)
	s.serving.Go(func() { _ = s.server.Serve(listener) })
	s.w.t.Cleanup(func() { s.server.Stop(); s.serving.Wait() })
}

// Confirm implements ProducerService.
func (s *stub) Confirm(ctx context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	now := s.calls.Add(1)
	defer s.calls.Add(-1)
	for peak := s.peak.Load(); now > peak && !s.peak.CompareAndSwap(peak, now); {
		peak = s.peak.Load()
	}
	pause(ctx, s.takes)
	response := &pb.ConfirmResponse{}
	for _, id := range r.GetIds() {
		verdict, err := s.answer(ctx, id, r.GetFinal())
		if err != nil {
			return nil, err
		}
		response.Confirmations = append(response.Confirmations, &pb.Confirmation{Id: id, Verdict: verdict})
	}
	return response, nil
}

// DeleteBusiness implements ProducerService: there are no markers.
func (s *stub) DeleteBusiness(context.Context, *pb.DeleteBusinessRequest) (*pb.DeleteBusinessResponse, error) {
	return &pb.DeleteBusinessResponse{}, nil
}

func (s *stub) key(n int) string { return fmt.Sprintf("%s/%06d", s.name, n) }

// body is 1 KiB that names the message.
func (s *stub) body(n int) []byte {
	one := []byte(s.key(n) + " ")
	return bytes.Repeat(one, 1+(1<<10)/len(one))[:1<<10]
}

// had notes that the messages in a range of numbers have committed.
func (s *stub) had(from, to int) {
	for n := from; n < to; n++ {
		s.w.ledger.Had(s.key(n), NewContent(exchange, s.name, nil, s.body(n)))
	}
}

// send stores half messages with these numbers through a coordinator, and says how many were stored and how many were
// refused with RESOURCE_EXHAUSTED. Anything else is an error.
func (s *stub) send(ctx context.Context, c *coordinator, from, to int) (stored, refused int, err error) {
	request := &pb.SendHalfMessagesRequest{
		Producer: s.name, CallbackTarget: s.target, ConfirmAfter: durationpb.New(time.Millisecond),
	}
	for n := from; n < to; n++ {
		request.Messages = append(request.Messages, &pb.Message{
			Id: fmt.Sprintf("%06d", n), Exchange: exchange, RoutingKey: s.name, Body: s.body(n),
		})
	}
	err = s.w.call(c, func(conn *grpc.ClientConn) error {
		response, err := pb.NewMessageHandlerServiceClient(conn).SendHalfMessages(ctx, request)
		if status.Code(err) == codes.ResourceExhausted {
			refused = to - from
			return nil
		}
		for _, o := range response.GetOutcomes() {
			switch codes.Code(o.GetCode()) {
			case codes.OK:
				stored++
			case codes.ResourceExhausted:
				refused++
			default:
				err = fmt.Errorf("%s: %s", codes.Code(o.GetCode()), o.GetError())
			}
		}
		return err
	})
	return stored, refused, err
}

// call makes a call to one of the coordinators.
func (w *world) call(c *coordinator, do func(conn *grpc.ClientConn) error) error {
	conn, err := grpc.NewClient(c.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(conn)
}
