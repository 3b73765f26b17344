package wire_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/wire"
)

// coordinator counts the Submits that arrive.
type coordinator struct {
	pb.UnimplementedMessageHandlerServiceServer
	submits atomic.Int32
	token   atomic.Value
}

func (c *coordinator) Submit(ctx context.Context, in *pb.SubmitRequest) (*pb.SubmitResponse, error) {
	c.submits.Add(1)
	md, _ := metadata.FromIncomingContext(ctx)
	c.token.Store(append(md.Get("authorization"), "")[0])
	if in.GetId() == "unknown" {
		s, err := status.New(codes.NotFound, "no such message").WithDetails(&errdetails.ErrorInfo{Reason: "NOT_FOUND"})
		if err != nil {
			return nil, err
		}
		return nil, s.Err()
	}
	return &pb.SubmitResponse{State: pb.State_STATE_DONE}, nil
}

// calls is a coordinator behind a proxy, and a client of it.
func calls(t *testing.T) (*wire.Calls, *coordinator, pb.MessageHandlerServiceClient) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &coordinator{}, grpc.NewServer()
	pb.RegisterMessageHandlerServiceServer(server, c)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	p := wire.GRPC(t, listener.Addr().String())
	conn, err := grpc.NewClient(p.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return p, c, pb.NewMessageHandlerServiceClient(conn)
}

func TestCallsPassWithMetadataAndErrors(t *testing.T) {
	t.Parallel()
	p, c, client := calls(t)
	var recorded notes
	p.On(recorded.record)
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer x"),
		patience)
	defer cancel()
	response, err := client.Submit(ctx, &pb.SubmitRequest{Producer: "orders", Id: "1"})
	if err != nil || response.GetState() != pb.State_STATE_DONE || c.token.Load() != "Bearer x" {
		t.Errorf("%v, %v, token %q", response, err, c.token.Load())
	}
	want(t, "call", recorded.of("Submit"), "Submit before [{orders/1 }]", "Submit after [{orders/1 }]")
	_, err = client.Submit(ctx, &pb.SubmitRequest{Producer: "orders", Id: "unknown"})
	if s := status.Convert(err); s.Code() != codes.NotFound || len(s.Details()) != 1 {
		t.Errorf("%v with %v", err, s.Details())
	}
}

// Only a lost reply has reached the server.
func TestOnlyLostRepliesReachedTheServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		phase   wire.Phase
		act     wire.Act
		code    codes.Code
		reached int32
	}{
		{wire.Request, wire.Cut, codes.Unavailable, 0},
		{wire.Reply, wire.Cut, codes.Unavailable, 1},
		{wire.Request, wire.Silence, codes.DeadlineExceeded, 0},
		{wire.Reply, wire.Silence, codes.DeadlineExceeded, 1},
	} {
		p, server, client := calls(t)
		p.On(at("Submit", c.phase, c.act))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := client.Submit(ctx, &pb.SubmitRequest{Producer: "orders", Id: "1"}, grpc.WaitForReady(true))
		cancel()
		if status.Code(err) != c.code || server.submits.Load() != c.reached {
			t.Errorf("%+v: %v, reached %d times", c, err, server.submits.Load())
		}
		if _, err := client.Submit(t.Context(), &pb.SubmitRequest{Producer: "orders", Id: "1"}); err != nil {
			t.Errorf("%+v: the next call: %v", c, err)
		}
	}
}

// A producer that watches the health of its coordinator does so through the proxy as well.
func TestStreamedAnswersPass(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	status, server := health.NewServer(), grpc.NewServer()
	healthv1.RegisterHealthServer(server, status)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	conn, err := grpc.NewClient(wire.GRPC(t, listener.Addr().String()).Addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watch, err := healthv1.NewHealthClient(conn).Watch(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []healthv1.HealthCheckResponse_ServingStatus{
		healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING,
	} {
		if got, err := watch.Recv(); err != nil || got.GetStatus() != want {
			t.Fatalf("%v, %v, want %v", got, err, want)
		}
		status.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
	}
}

func TestTapNamesMessagesOfCalls(t *testing.T) {
	t.Parallel()
	p, _, client := calls(t)
	var recorded notes
	p.On(recorded.record)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	one, two := &pb.Message{Id: "1"}, &pb.Message{Id: "2"}
	// No server has these methods here, which is not the proxy's business.
	_, _ = client.SendHalfMessage(ctx, &pb.SendHalfMessageRequest{Producer: "orders", Message: one})
	_, _ = client.SendHalfMessages(ctx, &pb.SendHalfMessagesRequest{Producer: "orders", Messages: []*pb.Message{one, two}})
	_, _ = client.SubmitAll(ctx, &pb.SubmitAllRequest{Producer: "orders", Ids: []string{"1", "2"}})
	_, _ = client.Rollback(ctx, &pb.RollbackRequest{Producer: "orders", Id: "1", Reason: "refused"})
	want(t, "calls", recorded.of("SendHalfMessage", "SendHalfMessages", "SubmitAll", "Rollback"),
		"SendHalfMessage before [{orders/1 }]", "SendHalfMessage after [{orders/1 }]",
		"SendHalfMessages before [{orders/1 } {orders/2 }]", "SendHalfMessages after [{orders/1 } {orders/2 }]",
		"SubmitAll before [{orders/1 } {orders/2 }]", "SubmitAll after [{orders/1 } {orders/2 }]",
		"Rollback before [{orders/1 }]", "Rollback after [{orders/1 }]")
}
