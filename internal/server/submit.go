package server

import (
	"context"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/submit"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Submit implements MessageHandlerService.
func (p *producers) Submit(ctx context.Context, r *msghandlerv1.SubmitRequest) (*msghandlerv1.SubmitResponse, error) {
	const call = "Submit"
	name := halfmsg.Name{Producer: r.GetProducer(), ID: r.GetId()}
	c := &check{}
	c.name(name)
	wait := c.wait(r.GetWait())
	if err := c.err(); err != nil {
		return nil, p.server.fail(ctx, call, err, halfmsg.None)
	}
	result, err := p.server.submits.Submit(ctx, name, wait)
	if err != nil {
		return nil, p.server.fail(ctx, call, err, halfmsg.None)
	}
	if result.Err != nil {
		return nil, p.server.fail(ctx, call, result.Err, result.State)
	}
	return &msghandlerv1.SubmitResponse{State: msghandlerv1.State(result.State)}, nil
}

// SubmitAll implements MessageHandlerService.
func (p *producers) SubmitAll(
	ctx context.Context, r *msghandlerv1.SubmitAllRequest,
) (*msghandlerv1.SubmitAllResponse, error) {
	const call = "SubmitAll"
	c := &check{}
	c.producer("producer", r.GetProducer())
	c.count("ids", len(r.GetIds()))
	wait := c.wait(r.GetWait())
	if err := c.err(); err != nil {
		return nil, p.server.fail(ctx, call, err, halfmsg.None)
	}
	results, err := p.submitEach(ctx, r.GetProducer(), r.GetIds(), wait)
	if err == nil {
		err = halted(results)
	}
	if err != nil {
		return nil, p.server.fail(ctx, call, err, halfmsg.None)
	}
	return &msghandlerv1.SubmitAllResponse{Outcomes: p.server.outcomes(ctx, call, results)}, nil
}

// submitEach judges each id alone and submits the valid ids, each once, however often an id is in the request.
func (p *producers) submitEach(
	ctx context.Context, producer string, ids []string, wait submit.Wait,
) ([]halfmsg.Result, error) {
	results := make([]halfmsg.Result, len(ids))
	var names []halfmsg.Name
	places := map[string]int{} // of each valid id in names
	for i, id := range ids {
		c := &check{}
		c.id(item("ids", i), id)
		if results[i].Err = c.err(); c.found != nil {
			continue
		}
		if _, known := places[id]; !known {
			places[id] = len(names)
			names = append(names, halfmsg.Name{Producer: producer, ID: id})
		}
	}
	if len(names) == 0 {
		return results, nil
	}
	submitted, err := p.server.submits.SubmitAll(ctx, names, wait)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		if place, valid := places[id]; valid {
			results[i] = submitted[place]
		}
	}
	return results, nil
}
