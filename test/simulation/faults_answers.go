package simulation

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// answerFaults spoil producers' answers to coordinators. An answer that is no verdict costs a question, and the
// questions of a message may be used up.
var answerFaults = []fault{
	{name: "late answers", chance: 20, start: answering(answerLate)},
	{name: "failing answers", chance: 20, start: answering(answerFailing), excuse: excuse{markers: true}},
	{name: "wrong answers", chance: 20, start: answering(answerWrong), excuse: excuse{misanswered: true}},
	{name: "half answers", chance: 20, start: answering(answerHalf), excuse: excuse{misanswered: true}},
	{name: "double answers", chance: 20, start: answering(answerTwice), excuse: excuse{misanswered: true}},
	{name: "another database", chance: 20, start: answering(answerElsewhere)},
}

// spoiled spoils an honest answer.
type spoiled func(ctx context.Context, d draws, in any, honest grpc.UnaryHandler) (any, error)

// answering returns a fault in which some answers are spoiled.
func answering(spoil spoiled) func(context.Context, *World, draws) {
	return func(ctx context.Context, w *World, d draws) {
		percent := 5 + d.intn("percent", 60)
		w.faulty.mu.Lock()
		defer w.faulty.mu.Unlock()
		w.faulty.answers = append(w.faulty.answers, func(
			call context.Context, producer string, in any, next grpc.UnaryHandler,
		) (any, error) {
			if ctx.Err() != nil || d.intn(producer, 100) >= percent || !d.strikes(producer) {
				return next(call, in)
			}
			return spoil(call, d, in, next)
		})
	}
}

// answerLate answers before or after the time that coordinators wait, whose callers may have gone.
func answerLate(_ context.Context, d draws, in any, honest grpc.UnaryHandler) (any, error) {
	time.Sleep(d.within("lateness", 0, 10*time.Second))
	return honest(context.Background(), in)
}

// answerFailing fails before or after the call took effect.
func answerFailing(ctx context.Context, d draws, in any, honest grpc.UnaryHandler) (any, error) {
	if d.intn("after", 2) == 0 {
		_, _ = honest(ctx, in)
	}
	return nil, status.Error([]codes.Code{codes.Internal, codes.Unavailable, codes.NotFound}[d.intn("code", 3)], "spoiled")
}

// confirmed is the honest answer to a Confirm; nil for another call, or a failed one.
func confirmed(ctx context.Context, in any, honest grpc.UnaryHandler) (*pb.ConfirmResponse, any, error) {
	out, err := honest(ctx, in)
	r, _ := out.(*pb.ConfirmResponse)
	if err != nil {
		r = nil
	}
	return r, out, err
}

// answerWrong gives numbers that are no verdicts, and answers about an id without a question.
func answerWrong(ctx context.Context, d draws, in any, honest grpc.UnaryHandler) (any, error) {
	r, out, err := confirmed(ctx, in, honest)
	if r == nil {
		return out, err
	}
	for _, c := range r.GetConfirmations() {
		c.Verdict = []pb.Verdict{pb.Verdict_VERDICT_UNSPECIFIED, 77, -1}[d.intn("verdict", 3)]
	}
	r.Confirmations = append(r.Confirmations, &pb.Confirmation{Id: "invented", Verdict: pb.Verdict_VERDICT_COMMITTED})
	return r, nil
}

// answerHalf leaves ids out.
func answerHalf(ctx context.Context, d draws, in any, honest grpc.UnaryHandler) (any, error) {
	r, out, err := confirmed(ctx, in, honest)
	if r == nil {
		return out, err
	}
	r.Confirmations = slices.DeleteFunc(r.Confirmations, func(*pb.Confirmation) bool { return d.intn("left out", 2) == 0 })
	return r, nil
}

// answerTwice answers about each id twice, the second time with any verdict.
func answerTwice(ctx context.Context, d draws, in any, honest grpc.UnaryHandler) (any, error) {
	r, out, err := confirmed(ctx, in, honest)
	if r == nil {
		return out, err
	}
	for _, c := range slices.Clone(r.GetConfirmations()) {
		others := []pb.Verdict{
			pb.Verdict_VERDICT_UNKNOWN, pb.Verdict_VERDICT_COMMITTED, pb.Verdict_VERDICT_ROLLED_BACK,
		}
		others = slices.DeleteFunc(others, func(v pb.Verdict) bool { return v == c.GetVerdict() })
		r.Confirmations = append(r.Confirmations, &pb.Confirmation{
			Id: c.GetId(), Verdict: others[d.intn("second", len(others))],
		})
	}
	return r, nil
}

// answerElsewhere answers from another database, in which no business has committed.
func answerElsewhere(ctx context.Context, _ draws, in any, honest grpc.UnaryHandler) (any, error) {
	asked, is := in.(*pb.ConfirmRequest)
	if !is {
		return honest(ctx, in)
	}
	r := &pb.ConfirmResponse{MarkerStore: "elsewhere"}
	for _, id := range asked.GetIds() {
		r.Confirmations = append(r.Confirmations, &pb.Confirmation{Id: id, Verdict: pb.Verdict_VERDICT_ROLLED_BACK})
	}
	return r, nil
}
