package faults

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// peer is a producer of single messages that speaks the API itself. A peer calls the first coordinator only, so that
// a row knows the lease holder of a submitted message; any coordinator may call back.
type peer struct {
	pb.UnimplementedProducerServiceServer
	w      *world
	target string
	api    pb.MessageHandlerServiceClient
	// answers are the verdicts about an id; without answers the id is left out.
	answers func(id string, final bool) []Fate
	// forgets is called before a marker is dropped.
	forgets func(id string)

	mu    sync.Mutex
	asked map[string]int
}

const peerName = "peer"

// newPeer serves its callbacks until the test ends. The answers follow its data until the row sets other answers.
func newPeer(w *world) *peer {
	w.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := grpc.NewClient(w.coordinators[0].grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	p := &peer{
		w: w, target: listener.Addr().String(), api: pb.NewMessageHandlerServiceClient(conn), asked: map[string]int{},
		forgets: func(string) {},
	}
	p.answers = func(id string, _ bool) []Fate { return []Fate{w.ledger.Fate(key(id))} }
	server := grpc.NewServer()
	pb.RegisterProducerServiceServer(server, p)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	w.t.Cleanup(func() {
		server.Stop()
		serving.Wait()
		_ = conn.Close()
	})
	return p
}

func key(id string) string { return peerName + "/" + id }

// Confirm notes its answer about an ended business; before the end it may answer anything.
func (p *peer) Confirm(_ context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	answer := &pb.ConfirmResponse{}
	for _, id := range r.GetIds() {
		p.mu.Lock()
		p.asked[id]++
		p.mu.Unlock()
		fates := p.answers(id, r.GetFinal())
		p.w.ledger.Noted(key(id), "producer", fmt.Sprintf("is asked, for the last time %t, and says %v", r.GetFinal(), fates))
		if len(fates) == 1 && fates[0] != Undecided { // an answer with both verdicts has said nothing
			p.w.ledger.Said(key(id), fates[0])
		}
		for _, fate := range fates {
			verdict := map[Fate]pb.Verdict{
				Undecided: pb.Verdict_VERDICT_UNKNOWN, Committed: pb.Verdict_VERDICT_COMMITTED,
				RolledBack: pb.Verdict_VERDICT_ROLLED_BACK,
			}[fate]
			answer.Confirmations = append(answer.Confirmations, &pb.Confirmation{Id: id, Verdict: verdict})
		}
	}
	return answer, nil
}

// DeleteBusiness is part of the story of its ids.
func (p *peer) DeleteBusiness(_ context.Context, r *pb.DeleteBusinessRequest) (*pb.DeleteBusinessResponse, error) {
	for _, id := range r.GetIds() {
		p.w.ledger.Noted(key(id), "producer", "is to drop the marker")
		p.forgets(id)
	}
	return &pb.DeleteBusinessResponse{}, nil
}

// times counts the Confirm calls about an id.
func (p *peer) times(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[id]
}

// send stores a half message; body is its only content.
func (p *peer) send(ctx context.Context, id, body string) {
	p.w.t.Helper()
	p.w.ledger.Sending(key(id), NewContent(exchange, peerName, headersOf(id), []byte(body)))
	_, err := p.api.SendHalfMessage(ctx, p.half(id, body))
	p.w.must(err)
	p.w.ledger.Accepted(key(id))
}

func (p *peer) half(id, body string) *pb.SendHalfMessageRequest {
	return &pb.SendHalfMessageRequest{
		Producer: peerName, CallbackTarget: p.target,
		Message: &pb.Message{
			Id: id, Exchange: exchange, RoutingKey: peerName, Headers: headersOf(id), Body: []byte(body),
		},
	}
}

// submit does not wait for an answer; a refusal is part of the story.
func (p *peer) submit(ctx context.Context, id string) {
	_, err := p.api.Submit(ctx, &pb.SubmitRequest{Producer: peerName, Id: id})
	p.w.ledger.Noted(key(id), "producer", fmt.Sprint("Submit returns: ", err))
}

// commit ends the business well and says so.
func (p *peer) commit(ctx context.Context, id string) {
	p.w.ledger.Decide(key(id), Committed)
	p.submit(ctx, id)
}
