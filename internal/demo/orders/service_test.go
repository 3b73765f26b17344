package orders_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/demo/orders"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// coordinator stores every rollback, and loses its answers until it is told to speak.
type coordinator struct {
	pb.UnimplementedMessageHandlerServiceServer
	speaks atomic.Bool
}

func (c *coordinator) SendHalfMessages(
	_ context.Context, r *pb.SendHalfMessagesRequest,
) (*pb.SendHalfMessagesResponse, error) {
	response := &pb.SendHalfMessagesResponse{}
	for range r.GetMessages() {
		response.Outcomes = append(response.Outcomes, &pb.Outcome{State: pb.State_STATE_PENDING})
	}
	return response, nil
}

func (c *coordinator) Rollback(context.Context, *pb.RollbackRequest) (*pb.RollbackResponse, error) {
	if !c.speaks.Load() {
		return nil, status.Error(codes.Unknown, "the answer is lost")
	}
	return &pb.RollbackResponse{State: pb.State_STATE_ROLLED_BACK}, nil
}

func serve(t *testing.T, c *coordinator) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterMessageHandlerServiceServer(server, c)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// A rollback that is stored and whose answer is lost is asked about by nobody: the service has to say it again, or it
// waits for ever.
func TestSettleRepeatsARollbackWhoseAnswerWasLost(t *testing.T) {
	c := &coordinator{}
	service, err := orders.New(orders.Config{
		Name: "orders", Coordinator: serve(t, c), Listen: "127.0.0.1:0", Dir: t.TempDir(),
		Markers: memory.New(), Exchange: "orders", RoutingKey: "order.paid",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := service.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	err = service.Place(t.Context(), orders.Order{ID: "1001", AmountCents: 1, Fail: orders.Rollback})
	if !errors.Is(err, orders.ErrDeclined) {
		t.Fatalf("Place: %v", err)
	}
	if open := service.Open(); open != 1 {
		t.Fatalf("%d orders are open while the coordinator has not answered, want 1", open)
	}
	c.speaks.Store(true)
	if open, err := service.Settle(t.Context()); open != 0 || err != nil {
		t.Errorf("Settle: %d orders are open, %v", open, err)
	}
}
