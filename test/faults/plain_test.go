package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// plain is a producer without the SDK, as a team in another language writes one: unary calls, each at a random
// coordinator, and a server that answers from the business data. Its marker is part of the business data: the marker
// exists from the transaction's end until DeleteBusiness.
type plain struct {
	witness
	pb.UnimplementedProducerServiceServer
	target       string
	coordinators []pb.MessageHandlerServiceClient

	forgotten sync.Map // ids whose markers are deleted
	answers   tally
}

// tally counts the answers of the coordinators, by "CALL CODE".
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (t *tally) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[what]++
}

func (t *tally) of(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[what]
}

// newPlain answers for itself.
func newPlain(w *world, name string) *plain {
	w.t.Helper()
	p := connectPlain(w, name)
	p.answerWith(w, p, grpc.UnaryInterceptor(p.observe))
	return p
}

// connectPlain opens a connection to each coordinator.
func connectPlain(w *world, name string) *plain {
	w.t.Helper()
	p := &plain{witness: witness{name: name, ledger: w.ledger, to: w.destination()}}
	for _, c := range w.coordinators {
		conn, err := grpc.NewClient(c.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { conn.Close() })
		p.coordinators = append(p.coordinators, pb.NewMessageHandlerServiceClient(conn))
	}
	return p
}

// answerWith serves its callbacks until the test ends.
func (p *plain) answerWith(w *world, callbacks pb.ProducerServiceServer, options ...grpc.ServerOption) {
	w.t.Helper()
	listener := listen(w.t)
	p.target = w.callback(p.name, listener.Addr().String())
	server := grpc.NewServer(options...)
	pb.RegisterProducerServiceServer(server, callbacks)
	serve(w.t, server, listener)
}

// Confirm answers from the business data alone, so the answer is the same after the deletion of the marker.
func (p *plain) Confirm(_ context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	answer := &pb.ConfirmResponse{}
	for _, id := range r.GetIds() {
		verdict := map[Fate]pb.Verdict{
			Undecided: pb.Verdict_VERDICT_UNKNOWN, Committed: pb.Verdict_VERDICT_COMMITTED,
			RolledBack: pb.Verdict_VERDICT_ROLLED_BACK,
		}[p.fate(id, r.GetFinal())]
		answer.Confirmations = append(answer.Confirmations, &pb.Confirmation{Id: id, Verdict: verdict})
	}
	return answer, nil
}

// DeleteBusiness drops markers. A call for an id without a verdict breaks the promise.
func (p *plain) DeleteBusiness(_ context.Context, r *pb.DeleteBusinessRequest) (*pb.DeleteBusinessResponse, error) {
	for _, id := range r.GetIds() {
		if !p.ledger.HasSaid(p.key(id)) {
			p.surprised("%s: DeleteBusiness before any verdict", p.key(id))
		}
		p.forgotten.Store(id, true)
	}
	return &pb.DeleteBusinessResponse{}, nil
}

func (p *plain) marked(context.Context) (keys []string, _ error) {
	for _, id := range p.ledger.IDs(p.name) {
		if _, gone := p.forgotten.Load(id); !gone && p.ledger.Fate(p.key(id)) != Undecided {
			keys = append(keys, p.key(id))
		}
	}
	return keys, nil
}

// definite are the answers that a repeated call would get again. After all others the outcome is unknown, or nothing
// was done, and the call is repeated.
var definite = []codes.Code{
	codes.OK, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.InvalidArgument, codes.PermissionDenied,
}

// call makes a call at one coordinator after another, starting with number `at`, until there is a definite answer.
func (p *plain) call(
	ctx context.Context, at int, call func(ctx context.Context, at pb.MessageHandlerServiceClient) error,
) codes.Code {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for ; ; at++ {
		code := p.once(ctx, at, call)
		if slices.Contains(definite, code) || ctx.Err() != nil {
			return code
		}
		pause(ctx, 200*time.Millisecond)
	}
}

func (p *plain) once(
	ctx context.Context, at int, call func(ctx context.Context, at pb.MessageHandlerServiceClient) error,
) codes.Code {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return status.Code(call(ctx, p.coordinators[at%len(p.coordinators)]))
}

// sendHalf notes its message.
func (p *plain) sendHalf(ctx context.Context, at int, d deed) codes.Code {
	p.sending(d)
	return p.send(ctx, at, &pb.Message{
		Id: d.id, Broker: p.to.broker, Exchange: exchange, RoutingKey: p.name, Headers: d.headers, Body: d.body,
	})
}

func (p *plain) send(ctx context.Context, at int, m *pb.Message) codes.Code {
	request := &pb.SendHalfMessageRequest{Producer: p.name, CallbackTarget: p.target, Message: m}
	code := p.call(ctx, at, func(ctx context.Context, at pb.MessageHandlerServiceClient) error {
		_, err := at.SendHalfMessage(ctx, request)
		return err
	})
	return p.note(p.key(m.GetId()), "SendHalfMessage", code)
}

func (p *plain) submit(ctx context.Context, at int, d deed, wait pb.Wait) codes.Code {
	return p.note(d.key, "Submit", p.call(ctx, at, func(ctx context.Context, at pb.MessageHandlerServiceClient) error {
		_, err := at.Submit(ctx, &pb.SubmitRequest{Producer: p.name, Id: d.id, Wait: wait})
		return err
	}))
}

// rollback drops the marker once the message is gone: no Confirm call follows.
func (p *plain) rollback(ctx context.Context, at int, d deed) codes.Code {
	code := p.call(ctx, at, func(ctx context.Context, at pb.MessageHandlerServiceClient) error {
		_, err := at.Rollback(ctx, &pb.RollbackRequest{Producer: p.name, Id: d.id, Reason: "refused"})
		return err
	})
	if code == codes.OK {
		p.forgotten.Store(d.id, true)
	}
	return p.note(d.key, "Rollback", code)
}

func (p *plain) note(key, call string, code codes.Code) codes.Code {
	p.ledger.Noted(key, "producer", fmt.Sprintf("%s returns %v", call, code))
	p.answers.add(fmt.Sprint(call, " ", code))
	return code
}

// want notes a surprise for a code that may not come.
func (p *plain) want(d deed, call string, got codes.Code, wanted ...codes.Code) {
	if !slices.Contains(wanted, got) {
		p.surprised("%s: %s returns %v, not %v", d.key, call, got, wanted)
	}
}

// begin sends a half message and ends its transaction. The result is false if a last Confirm call came first.
func (p *plain) begin(ctx context.Context, at int, d deed, fate Fate) bool {
	code := p.sendHalf(ctx, at, d)
	p.want(d, "SendHalfMessage", code, codes.OK)
	return code == codes.OK && p.end(d, fate)
}

// end ends the transaction of an accepted half message.
func (p *plain) end(d deed, fate Fate) bool {
	p.ledger.Accepted(d.key)
	return p.ledger.Decide(d.key, fate) == fate
}

// act does one business like the producers with the SDK, with races instead of repetitions.
func (p *plain) act(ctx context.Context, id string, random *rand.Rand) {
	d, at := p.draw(id, random), random.IntN(len(p.coordinators))
	if d.repeats() || d.conflicts() {
		races[random.IntN(len(races))](p, ctx, at, d)
		return
	}
	code := p.sendHalf(ctx, at, d)
	if p.want(d, "SendHalfMessage", code, codes.OK); code != codes.OK {
		return
	}
	switch err := p.transact(d); {
	case err == nil:
		p.want(d, "Submit", p.submit(ctx, at+1, d, pb.Wait_WAIT_UNSPECIFIED), codes.OK)
	case errors.Is(err, errRefused):
		p.want(d, "Rollback", p.rollback(ctx, at+1, d), codes.OK)
	}
}

// races are runs in which two parts of a producer do not know of each other. Each call of a race goes to a
// coordinator of its own.
var races = []func(p *plain, ctx context.Context, at int, d deed){
	(*plain).submitRacesRollback, (*plain).submitTwice, (*plain).submitEarly, (*plain).sendTwice,
	(*plain).rollbackAfterCommit,
}

// together runs calls at once and returns their results, in their order.
func together(calls ...func() codes.Code) []codes.Code {
	results := make([]codes.Code, len(calls))
	var running sync.WaitGroup
	for i, call := range calls {
		running.Go(func() { results[i] = call() })
	}
	running.Wait()
	return results
}

// submitRacesRollback: the business has rolled back; one part submits and the other rolls back.
func (p *plain) submitRacesRollback(ctx context.Context, at int, d deed) {
	if !p.begin(ctx, at, d, RolledBack) {
		return
	}
	got := together(
		func() codes.Code { return p.submit(ctx, at+1, d, pb.Wait_WAIT_UNSPECIFIED) },
		func() codes.Code { return p.rollback(ctx, at+2, d) },
	)
	p.want(d, "Submit", got[0], codes.OK, codes.FailedPrecondition)
	p.want(d, "Rollback", got[1], codes.OK)
}

// submitTwice at once, and once more when the broker has the message.
func (p *plain) submitTwice(ctx context.Context, at int, d deed) {
	if !p.begin(ctx, at, d, Committed) {
		return
	}
	for _, code := range together(
		func() codes.Code { return p.submit(ctx, at+1, d, pb.Wait_WAIT_UNSPECIFIED) },
		func() codes.Code { return p.submit(ctx, at+2, d, pb.Wait_WAIT_DONE) },
	) {
		p.want(d, "Submit", code, codes.OK)
	}
	p.want(d, "Submit of what is done", p.submit(ctx, at, d, pb.Wait_WAIT_UNSPECIFIED), codes.OK)
}

// submitEarly submits while SendHalfMessage has not returned, and then commits.
func (p *plain) submitEarly(ctx context.Context, at int, d deed) {
	p.sending(d)
	got := together(
		func() codes.Code { return p.submit(ctx, at+1, d, pb.Wait_WAIT_UNSPECIFIED) },
		func() codes.Code { return p.sendHalf(ctx, at, d) },
	)
	p.want(d, "SendHalfMessage", got[1], codes.OK)
	kept, wanted := p.end(d, Committed), []codes.Code{codes.OK, codes.NotFound}
	if !kept { // a last Confirm call rolled the message back while the Submit was at a coordinator that did not answer
		wanted = append(wanted, codes.FailedPrecondition)
	}
	p.want(d, "Submit", got[0], wanted...)
	if kept && d.way%2 == 0 {
		p.want(d, "Submit", p.submit(ctx, at+2, d, pb.Wait_WAIT_UNSPECIFIED), codes.OK)
	}
}

// sendTwice: two parts send the same half message at once, and a third part another message under the same id after
// the storing.
func (p *plain) sendTwice(ctx context.Context, at int, d deed) {
	for _, code := range together(
		func() codes.Code { return p.sendHalf(ctx, at, d) },
		func() codes.Code { return p.sendHalf(ctx, at+1, d) },
	) {
		p.want(d, "SendHalfMessage", code, codes.OK)
	}
	other := d
	other.body = []byte("another")
	p.want(d, "SendHalfMessage of another message", p.sendHalf(ctx, at+2, other), codes.AlreadyExists)
	if !p.end(d, Committed) {
		return
	}
	p.want(d, "Submit", p.submit(ctx, at+2, d, pb.Wait_WAIT_UNSPECIFIED), codes.OK)
}

// rollbackAfterCommit comes too late, and the message is delivered nevertheless.
func (p *plain) rollbackAfterCommit(ctx context.Context, at int, d deed) {
	if !p.begin(ctx, at, d, Committed) {
		return
	}
	p.want(d, "Submit", p.submit(ctx, at+1, d, pb.Wait_WAIT_SENDABLE), codes.OK)
	p.want(d, "Rollback of what is committed", p.rollback(ctx, at+2, d), codes.FailedPrecondition)
}

func (p *plain) answered(what string) int { return p.answers.of(what) }
