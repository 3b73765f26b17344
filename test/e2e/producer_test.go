package e2e

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// plainProducer is a producer without the SDK, as in another language.
type plainProducer struct {
	pb.UnimplementedProducerServiceServer
	t       *testing.T
	name    string
	api     pb.MessageHandlerServiceClient
	target  string
	confirm func(ctx context.Context, ids []string) (*pb.ConfirmResponse, error)
	// drop deletes markers; nil deletes them.
	drop func(ctx context.Context, ids []string) error

	mu    sync.Mutex
	asked map[string]time.Time
}

// newPlainProducer serves a producer. Its answers are set before it serves: a coordinator may ask at once.
func newPlainProducer(t *testing.T, name, coordinator string, answers ...func(*plainProducer)) *plainProducer {
	t.Helper()
	p := &plainProducer{t: t, name: name, asked: map[string]time.Time{}}
	p.confirm = p.committed
	for _, answer := range answers {
		answer(p)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.target = listener.Addr().String()
	server := grpc.NewServer()
	pb.RegisterProducerServiceServer(server, p)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	conn, err := grpc.NewClient(coordinator, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	p.api = pb.NewMessageHandlerServiceClient(conn)
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		serving.Wait()
	})
	return p
}

func (p *plainProducer) Confirm(ctx context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	now := time.Now()
	p.mu.Lock()
	for _, id := range r.GetIds() {
		if _, before := p.asked[id]; !before {
			p.asked[id] = now
		}
	}
	p.mu.Unlock()
	return p.confirm(ctx, r.GetIds())
}

// committed answers COMMITTED for everything.
func (p *plainProducer) committed(_ context.Context, ids []string) (*pb.ConfirmResponse, error) {
	response := &pb.ConfirmResponse{}
	for _, id := range ids {
		response.Confirmations = append(response.Confirmations, &pb.Confirmation{
			Id:      id,
			Verdict: pb.Verdict_VERDICT_COMMITTED,
		})
	}
	return response, nil
}

func (p *plainProducer) DeleteBusiness(
	ctx context.Context, r *pb.DeleteBusinessRequest,
) (*pb.DeleteBusinessResponse, error) {
	if p.drop != nil {
		if err := p.drop(ctx, r.GetIds()); err != nil {
			return nil, err
		}
	}
	return &pb.DeleteBusinessResponse{}, nil
}

// askedAt is when the coordinator first asked about a message, or zero.
func (p *plainProducer) askedAt(id string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[id]
}

// sendHalves stores messages without a Submit.
func (p *plainProducer) sendHalves(confirmAfter time.Duration, messages ...*pb.Message) {
	p.t.Helper()
	response, err := p.api.SendHalfMessages(p.t.Context(), &pb.SendHalfMessagesRequest{
		Producer: p.name, CallbackTarget: p.target, Messages: messages, ConfirmAfter: durationpb.New(confirmAfter),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	for i, o := range response.GetOutcomes() {
		if o.GetCode() != 0 {
			p.t.Fatalf("%s: %v", messages[i].GetId(), o)
		}
	}
}

// askedAbout is how many messages the coordinator has asked about.
func (p *plainProducer) askedAbout() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.asked)
}

// submit submits and returns the state of the message at the end of the wait.
func (p *plainProducer) submit(id string, wait pb.Wait) pb.State {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	response, err := p.api.Submit(ctx, &pb.SubmitRequest{Producer: p.name, Id: id, Wait: wait})
	if err != nil {
		p.t.Fatal(err)
	}
	return response.GetState()
}
