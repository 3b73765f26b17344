package producer_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// asker is a coordinator that welcomes streams and then does as a test says.
type asker struct {
	pb.UnimplementedMessageHandlerServiceServer
	then func(stream grpc.BidiStreamingServer[pb.AttendRequest, pb.AttendResponse]) error
}

func (a *asker) Attend(stream grpc.BidiStreamingServer[pb.AttendRequest, pb.AttendResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	welcome := &pb.AttendResponse{Kind: &pb.AttendResponse_Welcome{Welcome: &pb.AttendWelcome{Instance: "asker"}}}
	if err := stream.Send(welcome); err != nil {
		return err
	}
	return a.then(stream)
}

func questionOf(id uint64, producer string, ids ...string) *pb.AttendResponse {
	return &pb.AttendResponse{Kind: &pb.AttendResponse_Question{Question: &pb.AttendQuestion{
		Id: id, Timeout: durationpb.New(time.Minute),
		Question: &pb.AttendQuestion_Confirm{Confirm: &pb.ConfirmRequest{Producer: producer, Ids: ids}},
	}}}
}

// A coordinator that reads no answers must not keep Close from ending with its context.
func TestCloseEndsWithUnreadAnswers(t *testing.T) {
	t.Parallel()
	const questions, each = 8, 500
	ids := make([]string, each)
	for i := range ids {
		ids[i] = fmt.Sprintf("%0128d", i)
	}
	address := serve(t, &asker{then: func(stream grpc.BidiStreamingServer[pb.AttendRequest, pb.AttendResponse]) error {
		for i := range uint64(questions) {
			if err := stream.Send(questionOf(i+1, "orders", ids...)); err != nil {
				return err
			}
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}}, grpc.InitialWindowSize(64<<10), grpc.InitialConnWindowSize(64<<10))
	var resolved atomic.Int64
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: address, Markers: memory.New(), Logger: slog.New(slog.DiscardHandler),
		Resolve: func(context.Context, string, bool) (marker.Verdict, error) {
			resolved.Add(1)
			return marker.Unknown, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, 30*time.Second, "more is answered than flow control lets through", func() bool {
		return resolved.Load() >= questions*each
	})
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = p.Close(ctx) // nothing else is under way
	}()
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Error("Close waits for a coordinator without a reader")
	}
}

// A failure whose text is cut within a character would break the stream.
func TestALongFailureKeepsItsStream(t *testing.T) {
	t.Parallel()
	answered := make(chan *pb.AttendFailure, 10)
	address := serve(t, &asker{then: func(stream grpc.BidiStreamingServer[pb.AttendRequest, pb.AttendResponse]) error {
		for i, other := range []string{strings.Repeat("é", 200), "x" + strings.Repeat("é", 200)} {
			if err := stream.Send(questionOf(uint64(i)+1, other, "1")); err != nil {
				return err
			}
			r, err := stream.Recv()
			for err == nil && r.GetAnswer() == nil {
				r, err = stream.Recv() // the second stream to one coordinator goes away
			}
			if err != nil {
				return err
			}
			answered <- r.GetAnswer().GetFailure()
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}})
	attending(t, memory.New(), &servers.Log{}, address)
	for range 2 {
		select {
		case failure := <-answered:
			if codes.Code(failure.GetCode()) != codes.FailedPrecondition {
				t.Errorf("got %v", failure)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("the stream broke")
		}
	}
}
