package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// maxAsked is how many ids a question may have: as many as a coordinator asks about at once.
const maxAsked = 500

// AskProducer implements AdminService.
func (o *operators) AskProducer(
	ctx context.Context, r *adminv1.AskProducerRequest,
) (*adminv1.AskProducerResponse, error) {
	const call = "AskProducer"
	if o.server.config.Attendance == nil {
		return o.UnimplementedAdminServiceServer.AskProducer(ctx, r)
	}
	if err := understood(r); err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	c := &check{}
	c.question(r)
	if err := c.err(); err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime(ctx, o.server.config.ConfirmTimeout))
	defer cancel()
	asked := o.server.config.Attendance.Client(r.GetProducer())
	answer := &adminv1.AskProducerResponse{}
	var err error
	if question := r.GetConfirm(); question != nil {
		var confirm *msghandlerv1.ConfirmResponse
		confirm, err = asked.Confirm(ctx, question)
		answer.Answer = &adminv1.AskProducerResponse_Confirm{Confirm: confirm}
	} else {
		var deleted *msghandlerv1.DeleteBusinessResponse
		deleted, err = asked.DeleteBusiness(ctx, r.GetDeleteBusiness())
		answer.Answer = &adminv1.AskProducerResponse_DeleteBusiness{DeleteBusiness: deleted}
	}
	if r.GetConfirm().GetFinal() {
		o.server.recordFinal(ctx, r, err)
	}
	if err != nil {
		failed := status.Convert(err)
		answer.Answer = &adminv1.AskProducerResponse_Failure{Failure: &msghandlerv1.AttendFailure{
			Code: int32(failed.Code()), Message: failed.Message(), //nolint:gosec // codes are small
		}}
	}
	return answer, nil
}

// recordFinal records a final question, which may have left tombstones in the producer's database.
func (s *Server) recordFinal(ctx context.Context, asked *adminv1.AskProducerRequest, err error) {
	r := audit.Record{Action: audit.AskProducer, Producer: asked.GetProducer(), Result: audit.Done}
	for _, id := range asked.GetConfirm().GetIds() {
		r.Names = append(r.Names, halfmsg.Name{Producer: asked.GetProducer(), ID: id}.String())
	}
	if err != nil {
		r.Result, r.Cause = audit.Failed, status.Convert(err).Message()
	}
	s.config.Audit.Record(withOrigin(ctx), r)
}

// answerTime is how long a producer may take to answer, so that the caller still learns that no answer came.
func answerTime(ctx context.Context, most time.Duration) time.Duration {
	if deadline, set := ctx.Deadline(); set {
		return min(most, time.Until(deadline)*9/10)
	}
	return most
}

// question checks a question of an operator. A final question about an id without a marker plants a tombstone, and so
// vetoes a transaction that runs: it may name no id that a message has.
func (c *check) question(r *adminv1.AskProducerRequest) {
	c.producer("producer", r.GetProducer())
	about, store := r.GetConfirm().GetProducer(), r.GetConfirm().GetMarkerStore()
	ids, onlyProbes := r.GetConfirm().GetIds(), r.GetConfirm().GetFinal()
	switch {
	case r.GetQuestion() == nil:
		c.fail("question", "must be confirm or delete_business")
		return
	case r.GetConfirm() == nil:
		about, store = r.GetDeleteBusiness().GetProducer(), r.GetDeleteBusiness().GetMarkerStore()
		ids, onlyProbes = r.GetDeleteBusiness().GetIds(), true
	}
	// The question goes to the producer as it is: one larger than a client takes would break the stream.
	c.producer("question.producer", about)
	c.markerStore("question.marker_store", store)
	if len(ids) > maxAsked {
		c.fail("ids", "has %d ids, more than %d", len(ids), maxAsked)
	}
	for _, id := range ids {
		c.id("ids", id)
		if onlyProbes && !strings.HasPrefix(id, halfmsg.ProbePrefix) {
			c.fail("ids", "must begin with %s: a final question and a deletion must not concern a message", halfmsg.ProbePrefix)
		}
		if c.found != nil {
			return
		}
	}
}

// beyondProbe says whether a request asks a producer finally, or about an id that a message may have.
func beyondProbe(request any) bool {
	r, is := request.(*adminv1.AskProducerRequest)
	if !is {
		return false
	}
	if r.GetConfirm().GetFinal() {
		return true
	}
	return slices.ContainsFunc(slices.Concat(r.GetConfirm().GetIds(), r.GetDeleteBusiness().GetIds()),
		func(id string) bool { return !strings.HasPrefix(id, halfmsg.ProbePrefix) })
}
