package producer

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/ground/batch"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/producer/marker"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// maxBatch is half of the coordinator's limit for a call: larger batches gain little and wait longer.
	maxBatch = 500
	// maxBatchBytes keeps a call under gRPC's default limit of 4 MiB for a message, even if the coordinator's is higher. A
	// larger single message goes alone.
	maxBatchBytes = 3 << 20
	// parallelBatches lets the next batch leave while the last is in flight, on a second and third connection where the
	// coordinator has several addresses.
	parallelBatches = 4
	// groupTimeout is only a backstop: each call within a batch has its own callTimeout.
	groupTimeout = time.Minute
)

func groupConfig(waiting int) batch.Config {
	return batch.Config{Max: maxBatch, Parallel: parallelBatches, Waiting: waiting, Timeout: groupTimeout}
}

// sendHalves stores half messages, in as few calls as their size allows.
func (p *Producer) sendHalves(ctx context.Context, messages []*pb.Message) []answer {
	answers := make([]answer, 0, len(messages))
	for len(messages) > 0 {
		n := fitting(messages)
		answers = append(answers, p.sendHalfBatch(ctx, messages[:n])...)
		messages = messages[n:]
	}
	return answers
}

// fitting is how many of the messages fit into one call.
func fitting(messages []*pb.Message) int {
	size := 0
	for i, m := range messages {
		size += proto.Size(m)
		if i > 0 && size > maxBatchBytes {
			return i
		}
	}
	return len(messages)
}

func (p *Producer) sendHalfBatch(ctx context.Context, messages []*pb.Message) []answer {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request := &pb.SendHalfMessagesRequest{
		Producer: p.config.Name, CallbackTarget: p.config.CallbackTarget, Messages: messages,
		MarkerStore: p.namedStore(),
	}
	if p.config.ConfirmAfter > 0 {
		request.ConfirmAfter = durationpb.New(p.config.ConfirmAfter)
	}
	response, err := p.coordinator.SendHalfMessages(ctx, request)
	id := func(i int) string { return messages[i].GetId() }
	return answersOf(opSendHalf, response.GetOutcomes(), err, len(messages), id)
}

// submitAll submits ids in one call.
func (p *Producer) submitAll(ctx context.Context, ids []string) []answer {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := p.coordinator.SubmitAll(ctx, &pb.SubmitAllRequest{Producer: p.config.Name, Ids: ids})
	return answersOf(opSubmit, response.GetOutcomes(), err, len(ids), func(i int) string { return ids[i] })
}

// answersOf translates a batch's outcomes; an error of the whole call is the error of each item.
func answersOf(op string, outcomes []*pb.Outcome, err error, n int, id func(int) string) []answer {
	answers := make([]answer, n)
	for i := range answers {
		switch {
		case err != nil:
			answers[i].failure = fromRPC(op, id(i), err)
		case i >= len(outcomes):
			answers[i].failure = fromOutcome(op, id(i), codes.Internal, "the answer leaves this message out", 0)
		default:
			o := outcomes[i]
			answers[i].state = o.GetState()
			//nolint:gosec // codes are small
			if failure := fromOutcome(op, id(i), codes.Code(o.GetCode()), o.GetError(), o.GetState()); failure != nil {
				failure.Reason = o.GetReason()
				answers[i].failure = failure
			}
		}
	}
	return answers
}

// found is a marker store's answer for one id.
type found struct {
	verdict marker.Verdict
	// unmarked: the business was to leave the marker in its transaction, and did not.
	unmarked bool
	err      error
}

// lookupMarkers looks markers up before the business of their ids.
func (p *Producer) lookupMarkers(ctx context.Context, ids []string) []found {
	verdicts, err := marked(ctx, p.config.Markers, ids, false)
	return eachFound(ids, verdicts, err)
}

// markAll makes sure that ids are marked as committed.
func (p *Producer) markAll(ctx context.Context, ids []string) []found {
	if p.can.InTransaction {
		return p.demandMarkers(ctx, ids)
	}
	return p.putMarkers(ctx, ids)
}

// demandMarkers looks for the markers that businesses were to leave in their transactions, and writes missing markers
// now, so that the messages are not lost.
func (p *Producer) demandMarkers(ctx context.Context, ids []string) []found {
	results := p.lookupMarkers(ctx, ids)
	var missing []string
	var places []int
	for i, r := range results {
		if r.err == nil && !r.verdict.Definite() {
			missing, places = append(missing, ids[i]), append(places, i)
		}
	}
	if len(missing) == 0 {
		return results
	}
	for i, r := range p.putMarkers(ctx, missing) {
		r.unmarked = r.err == nil && r.verdict == marker.Committed
		results[places[i]] = r
	}
	return results
}

// putMarkers marks ids as committed.
func (p *Producer) putMarkers(ctx context.Context, ids []string) []found {
	standing, err := put(ctx, p.config.Markers, ids, marker.Committed)
	results := eachFound(ids, standing, err)
	for i := range results {
		if results[i].err == nil && !results[i].verdict.Definite() {
			results[i].err = fmt.Errorf("the store left %s out", ids[i])
		}
	}
	return results
}

// put marks ids and returns the marker of each afterwards.
func put(
	ctx context.Context, markers marker.Store, ids []string, v marker.Verdict,
) (standing map[string]marker.Verdict, err error) {
	err = guard(func() (err error) {
		standing, err = markers.Put(ctx, ids, v)
		return err
	})
	return standing, err
}

func eachFound(ids []string, verdicts map[string]marker.Verdict, err error) []found {
	results := make([]found, len(ids))
	for i, id := range ids {
		results[i] = found{verdict: verdicts[id], err: err}
	}
	return results
}

// guard calls a marker store or a function of Config, and returns a panic as a *lifecycle.PanicError: foreign code must
// not end the process.
func guard(call func() error) (err error) {
	if panicked := lifecycle.Recovered(func() { err = call() }); panicked != nil {
		return panicked
	}
	return err
}

// ofMarkers makes one id's call through a group of marker calls.
func ofMarkers(ctx context.Context, g *batch.Group[string, found], id string) (found, error) {
	results, err := g.Do(ctx, id)
	if err != nil {
		return found{}, err
	}
	return results[0], results[0].err
}
