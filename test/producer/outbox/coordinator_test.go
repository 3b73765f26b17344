package outbox_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// states answers as a coordinator whose messages stand where their ids say.
type states struct {
	pb.UnimplementedMessageHandlerServiceServer

	mu        sync.Mutex
	submitted []string
}

func (s *states) SendHalfMessages(
	_ context.Context, r *pb.SendHalfMessagesRequest,
) (*pb.SendHalfMessagesResponse, error) {
	response := &pb.SendHalfMessagesResponse{}
	for _, m := range r.GetMessages() {
		o := &pb.Outcome{State: pb.State(pb.State_value["STATE_"+m.GetId()])}
		if m.GetId() == "taken" {
			o = &pb.Outcome{Code: int32(codes.AlreadyExists), Error: "another message has that name"}
		}
		response.Outcomes = append(response.Outcomes, o)
	}
	return response, nil
}

func (s *states) SubmitAll(_ context.Context, r *pb.SubmitAllRequest) (*pb.SubmitAllResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.submitted = append(s.submitted, r.GetIds()...)
	response := &pb.SubmitAllResponse{}
	for range r.GetIds() {
		response.Outcomes = append(response.Outcomes, &pb.Outcome{State: pb.State_STATE_PENDING})
	}
	return response, nil
}

// connected is a producer of the coordinator at an address.
func connected(t *testing.T, address string) *producer.Producer {
	t.Helper()
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: address, Markers: memory.New(), SendTimeout: time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

func TestCoordinatorAnswersBecomeFates(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, s := grpc.NewServer(), &states{}
	pb.RegisterMessageHandlerServiceServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	want := map[string]outbox.Fate{
		"PENDING": outbox.Handed, "ABANDONED": outbox.Handed, "SENDABLE": outbox.Handed, "DEAD": outbox.Handed,
		"DONE": outbox.Sent, "ROLLED_BACK": outbox.Refused, "taken": outbox.Refused,
	}
	var messages []sqlmarker.Queued
	for id := range want {
		messages = append(messages, sqlmarker.Queued{Message: message(id)})
	}
	for i, r := range outbox.ToCoordinator(connected(t, listener.Addr().String())).Send(t.Context(), messages) {
		if id := messages[i].Message.ID; r.Fate != want[id] || (r.Fate == outbox.Refused) != (r.Err != nil) {
			t.Errorf("%s: %v, %v", id, r.Fate, r.Err)
		}
	}
	// A late Submit revives an abandoned message; a message with a stored verdict needs no Submit.
	if len(s.submitted) != 2 {
		t.Errorf("submitted %v", s.submitted)
	}
}

func TestUnreachableCoordinatorIsUnreached(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := connected(t, listener.Addr().String())
	_ = listener.Close()
	messages := []sqlmarker.Queued{{Message: message("1")}, {Message: message("2")}}
	for _, r := range outbox.ToCoordinator(p).Send(t.Context(), messages) {
		if r.Fate != outbox.Unreached || r.Err == nil {
			t.Errorf("%+v", r)
		}
	}
}
