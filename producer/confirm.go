package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/producer/marker"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// maxConfirm is how many ids the contract allows in a callback.
const maxConfirm = 500

// callbacks serves the coordinator's questions.
type callbacks struct {
	pb.UnimplementedProducerServiceServer
	producer *Producer
}

// Confirm answers from the messages in flight, then from the markers, then from Resolve. A marker store that fails
// makes the whole call fail. A half message that is still being stored is UNAVAILABLE, and so is an id whose Resolve
// fails or gets no turn in time. None of these costs the messages an attempt. A panic makes the answer UNKNOWN,
// except for a half message that is still being stored.
func (c *callbacks) Confirm(ctx context.Context, request *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	if err := c.producer.admit(ctx); err != nil {
		return nil, err
	}
	return c.confirm(ctx, request)
}

// confirm answers a caller who is let in.
func (c *callbacks) confirm(ctx context.Context, request *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	if err := c.check(request.GetProducer(), request.GetIds()); err != nil {
		return nil, err
	}
	own, markers, err := c.ownMarkers(ctx, request.GetMarkerStore(), request.GetIds()[0])
	switch {
	case err != nil:
		return nil, err
	case markers == nil:
		return foreign(own, request.GetIds()), nil
	}
	verdicts, err := c.producer.verdicts(ctx, markers, request.GetIds(), request.GetFinal())
	if err != nil {
		return nil, c.unavailable(request.GetIds()[0], err)
	}
	response := &pb.ConfirmResponse{
		MarkerStore: own, Confirmations: make([]*pb.Confirmation, 0, len(verdicts)),
	}
	for id, verdict := range verdicts {
		if !verdict.Definite() && verdict != marker.Unavailable {
			verdict = marker.Unknown
		}
		response.Confirmations = append(response.Confirmations, &pb.Confirmation{Id: id, Verdict: pb.Verdict(verdict)})
	}
	return response, nil
}

// DeleteBusiness forgets the markers of messages whose fate the coordinator has stored.
func (c *callbacks) DeleteBusiness(
	ctx context.Context, request *pb.DeleteBusinessRequest,
) (*pb.DeleteBusinessResponse, error) {
	if err := c.producer.admit(ctx); err != nil {
		return nil, err
	}
	return c.deleteBusiness(ctx, request)
}

// deleteBusiness answers a caller who is let in.
func (c *callbacks) deleteBusiness(
	ctx context.Context, request *pb.DeleteBusinessRequest,
) (*pb.DeleteBusinessResponse, error) {
	if err := c.check(request.GetProducer(), request.GetIds()); err != nil {
		return nil, err
	}
	p := c.producer
	own, markers, err := c.ownMarkers(ctx, request.GetMarkerStore(), request.GetIds()[0])
	switch {
	case err != nil:
		return nil, err
	case markers == nil:
		return nil, status.Errorf(codes.FailedPrecondition,
			"the messages name the marker store %s, and the markers of %s are %q", request.GetMarkerStore(), p.config.Name, own)
	}
	p.inflight.forget(request.GetIds()...)
	err = guard(func() error { return markers.Delete(ctx, request.GetIds()) })
	if err != nil {
		p.complaints.add(levelNotDeleted, "markers could not be deleted; the coordinator will try again",
			request.GetIds()[0], err)
		return nil, status.Errorf(codes.Unavailable, "the marker store of %s is unavailable", p.config.Name)
	}
	return &pb.DeleteBusinessResponse{}, nil
}

// check refuses requests for another producer. The answer costs the messages no attempt, so they wait until the
// configuration is right.
func (c *callbacks) check(producer string, ids []string) error {
	switch {
	case producer != c.producer.config.Name:
		return status.Errorf(codes.FailedPrecondition,
			"this is the producer %q, not %q: check its callback target", c.producer.config.Name, producer)
	case len(ids) == 0:
		return status.Error(codes.InvalidArgument, "ids is empty")
	case len(ids) > maxConfirm:
		return status.Errorf(codes.InvalidArgument, "ids holds %d, more than %d", len(ids), maxConfirm)
	}
	return nil
}

// verdicts finds the verdict of every id; an id without a verdict is Unknown.
func (p *Producer) verdicts(
	ctx context.Context, markers marker.Store, ids []string, final bool,
) (map[string]marker.Verdict, error) {
	q := p.inflight.questionAbout(ids, final && p.can.DecidesFinal)
	defer p.inflight.asked(q.open)
	ctx, cancel := answerInTime(ctx)
	defer cancel()
	p.onTheirWay(ctx, markers, q)
	named := slices.Concat(q.open, q.running)
	if len(named) == 0 {
		return q.known, nil
	}
	found, err := marked(ctx, markers, named, final)
	var panicked *lifecycle.PanicError
	if errors.As(err, &panicked) {
		p.complaints.add(slog.LevelError, "the marker store panicked; the answer is UNKNOWN", named[0], err)
		return q.known, nil
	}
	if err != nil {
		return nil, err
	}
	for _, id := range q.running {
		if found[id] == marker.Committed { // by an earlier run, which the running Send cannot undo
			q.known[id] = marker.Committed
		}
	}
	var unmarked []string
	for _, id := range q.open {
		if q.known[id] = found[id]; !found[id].Definite() {
			unmarked = append(unmarked, id)
		}
	}
	p.resolveAll(ctx, markers, unmarked, final, q.known)
	return q.known, nil
}

// onTheirWay answers for ids whose half message is still being stored: the coordinator has the message, and its
// answer was lost or is late. The business has not begun, so the answer must cost no attempt: the Send may yet get
// its OK and run the business. A final question must not keep this business from running either, so the store is
// asked without final. A commit of an earlier run is reported anyway.
func (p *Producer) onTheirWay(ctx context.Context, markers marker.Store, q question) {
	if len(q.storing) == 0 {
		return
	}
	found, err := marked(ctx, markers, q.storing, false)
	if err != nil {
		p.complaints.add(slog.LevelWarn, "the marker store failed; the coordinator will ask again", q.storing[0], err)
	}
	for _, id := range q.storing {
		if q.known[id] = marker.Unavailable; found[id] == marker.Committed {
			q.known[id] = marker.Committed
		}
	}
}

// marked looks markers up. A panic of the store is returned as an error.
func marked(
	ctx context.Context, markers marker.Store, ids []string, final bool,
) (found map[string]marker.Verdict, err error) {
	err = guard(func() (err error) {
		found, err = markers.Lookup(ctx, ids, final)
		return err
	})
	return found, err
}

// answerInTime leaves the last quarter of the call's time for the way of the answer: an incomplete answer in time is
// worth more than a complete one too late.
func answerInTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, set := ctx.Deadline()
	if !set {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)*3/4)
}

// resolveAll asks Resolve about ids without a marker and writes the verdicts to known. Ids whose turn does not come
// in time are unavailable. So are ids whose marker lookup failed, unless Resolve decides.
func (p *Producer) resolveAll(
	ctx context.Context, markers marker.Store, ids []string, final bool, known map[string]marker.Verdict,
) {
	if p.config.Resolve == nil || len(ids) == 0 {
		return
	}
	var mu sync.Mutex
	var workers sync.WaitGroup
	next := make(chan string)
	for range min(ResolveParallel, len(ids)) {
		workers.Go(func() {
			for id := range next {
				verdict := p.resolved(ctx, markers, id, final)
				mu.Lock()
				if verdict.Definite() || known[id] != marker.Unavailable {
					known[id] = verdict
				}
				mu.Unlock()
			}
		})
	}
	for i, id := range ids {
		if ctx.Err() != nil {
			mu.Lock()
			for _, late := range ids[i:] {
				known[late] = marker.Unavailable
			}
			mu.Unlock()
			break
		}
		next <- id
	}
	close(next)
	workers.Wait()
}

// resolved asks Resolve about one id. A rolled-back verdict is marked before Confirm reports the verdict, so that a
// later Send, here or in another replica, does not run. The first marker of an id wins.
func (p *Producer) resolved(ctx context.Context, markers marker.Store, id string, final bool) marker.Verdict {
	verdict, err := p.resolve(ctx, id, final)
	if err == nil && verdict == marker.RolledBack {
		verdict, err = markRolledBack(ctx, markers, id)
	}
	var panicked *lifecycle.PanicError
	switch {
	case errors.As(err, &panicked):
		p.complaints.add(slog.LevelError, "finding out a message's fate panicked; the answer is UNKNOWN", id, err)
		return marker.Unknown
	case err != nil:
		p.complaints.add(slog.LevelWarn, "a message's fate could not be found out; the answer is UNAVAILABLE", id, err)
		return marker.Unavailable
	}
	return verdict
}

func (p *Producer) resolve(ctx context.Context, id string, final bool) (verdict marker.Verdict, err error) {
	err = guard(func() (err error) {
		verdict, err = p.config.Resolve(ctx, id, final)
		return err
	})
	if err != nil {
		return marker.Unknown, fmt.Errorf("resolve %s: %w", id, err)
	}
	return verdict, nil
}
