package server

import (
	"context"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Submit implements MessageHandlerService.
func (s *producers) Submit(ctx context.Context, r *msghandlerv1.SubmitRequest) (*msghandlerv1.SubmitResponse, error) {
	const call = "Submit"
	name := halfmsg.Name{Producer: r.GetProducer(), ID: r.GetId()}
	c := &check{}
	c.name(name)
	c.wait(r.GetWait())
	if err := c.err(); err != nil {
		return nil, s.fail(call, err, halfmsg.None)
	}
	group := s.submits
	if s.config.Trusted(name.Producer) {
		group = s.verdicts
	}
	results, err := s.submitAndWait(ctx, []halfmsg.Name{name}, r.GetWait(),
		func(ctx context.Context, names []halfmsg.Name) ([]halfmsg.Submitted, error) {
			return group.Do(ctx, names...)
		})
	if err != nil {
		return nil, s.fail(call, err, halfmsg.None)
	}
	if results[0].Err != nil {
		return nil, s.fail(call, results[0].Err, results[0].State)
	}
	return &msghandlerv1.SubmitResponse{State: msghandlerv1.State(results[0].State)}, nil
}

// SubmitAll implements MessageHandlerService.
func (s *producers) SubmitAll(
	ctx context.Context, r *msghandlerv1.SubmitAllRequest,
) (*msghandlerv1.SubmitAllResponse, error) {
	const call = "SubmitAll"
	c := &check{}
	c.producer("producer", r.GetProducer())
	c.count("ids", len(r.GetIds()))
	c.wait(r.GetWait())
	if err := c.err(); err != nil {
		return nil, s.fail(call, err, halfmsg.None)
	}
	results, good := checkIDs(r.GetIds())
	names, places := once(r.GetProducer(), r.GetIds(), good)
	if len(names) > 0 {
		submitted, err := s.submitAndWait(ctx, names, r.GetWait(), s.submitHeavy)
		if err != nil {
			return nil, s.fail(call, err, halfmsg.None)
		}
		for _, i := range good {
			results[i] = submitted[places[r.GetIds()[i]]]
		}
	}
	if err := halted(results); err != nil {
		return nil, s.fail(call, err, halfmsg.None)
	}
	return &msghandlerv1.SubmitAllResponse{Outcomes: s.outcomes(call, results)}, nil
}

// checkIDs judges each id alone and returns the places of the good ones.
func checkIDs(ids []string) (results []halfmsg.Result, good []int) {
	results = make([]halfmsg.Result, len(ids))
	for i, id := range ids {
		c := &check{}
		c.id(item("ids", i), id)
		if results[i].Err = c.err(); c.found == nil {
			good = append(good, i)
		}
	}
	return results, good
}

// once names each message once, however often its id stands in the request, and says where each id stands among the
// names.
func once(producer string, ids []string, good []int) (names []halfmsg.Name, places map[string]int) {
	places = map[string]int{}
	for _, i := range good {
		if _, known := places[ids[i]]; !known {
			places[ids[i]] = len(names)
			names = append(names, halfmsg.Name{Producer: producer, ID: ids[i]})
		}
	}
	return names, places
}

// submitHeavy submits a batch of a call's own, which is one producer's.
func (s *Server) submitHeavy(ctx context.Context, names []halfmsg.Name) ([]halfmsg.Submitted, error) {
	done, err := s.heavy(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := s.detachedWriteContext(ctx)
	defer cancel()
	if s.config.Trusted(names[0].Producer) {
		return s.submitTrusted(ctx, names), nil
	}
	return s.submit(ctx, names), nil
}

// submitAndWait submits messages and waits for their fate as far as asked. The subscription begins
// before the Submit, or a message could be done before.
func (s *Server) submitAndWait(
	ctx context.Context, names []halfmsg.Name, wait msghandlerv1.Wait,
	submit func(context.Context, []halfmsg.Name) ([]halfmsg.Submitted, error),
) ([]halfmsg.Result, error) {
	var ear *subscription
	if wait != msghandlerv1.Wait_WAIT_UNSPECIFIED {
		var err error
		if ear, err = s.watch.subscribe(names); err != nil {
			return nil, err
		}
		defer s.watch.unsubscribe(ear)
	}
	submitted, err := submit(ctx, names)
	if err != nil {
		return nil, err
	}
	results, ours := make([]halfmsg.Result, len(submitted)), make([]bool, len(submitted))
	for i := range submitted {
		results[i], ours[i] = submitted[i].Result, submitted[i].Claim != nil
	}
	if ear != nil {
		w := &waiting{Server: s, wait: wait, subscription: ear, results: results, ours: ours}
		w.await(ctx)
	}
	return results, nil
}
