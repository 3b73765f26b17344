package server

import (
	"context"
	"time"

	"github.com/msghandler/msghandler/internal/ground/batch"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// What follows runs one batch of the store's. The groups run these outside of any handler, where a panic would end the
// process, so each of them catches it and answers all its items with it.

func (s *Server) create(ctx context.Context, messages []halfmsg.Message) (results []halfmsg.Result) {
	defer answerPanic(&results, len(messages))
	results = s.config.Intake.Create(ctx, messages)
	s.tails.results(results, func(i int) halfmsg.Name { return messages[i].Name })
	return publicResults(results)
}

func (s *Server) rollback(ctx context.Context, names []halfmsg.Name) (results []halfmsg.Result) {
	defer answerPanic(&results, len(names))
	results = s.config.Intake.Rollback(ctx, names)
	s.tails.results(results, func(i int) halfmsg.Name { return names[i] })
	return publicResults(results)
}

// submit makes messages due and sets those going that it could claim.
func (s *Server) submit(ctx context.Context, names []halfmsg.Name) []halfmsg.Submitted {
	return s.submitAs(ctx, names, s.config.Intake.Submit, s.config.ConfirmLease)
}

// submitTrusted stores Submits as verdicts and sets the messages going.
func (s *Server) submitTrusted(ctx context.Context, names []halfmsg.Name) []halfmsg.Submitted {
	return s.submitAs(ctx, names, s.config.Intake.SubmitTrusted, s.config.SendLease)
}

func (s *Server) submitAs(
	ctx context.Context, names []halfmsg.Name,
	store func(context.Context, []halfmsg.Name, time.Duration) []halfmsg.Submitted, lease time.Duration,
) (submitted []halfmsg.Submitted) {
	defer func() {
		if p := recover(); p != nil {
			submitted = make([]halfmsg.Submitted, len(names))
			for i := range submitted {
				submitted[i].Err = panicked(p)
			}
		}
	}()
	// Both are counted from before the call: so the lease never seems longer than it is.
	at := time.Now()
	until := at.Add(lease)
	submitted = store(ctx, names, lease)
	var claims []halfmsg.Claim
	for i := range submitted {
		submitted[i].State = publicState(submitted[i].State)
		if claim := submitted[i].Claim; claim != nil {
			claim.SubmittedAt = at
			claims = append(claims, *claim)
		}
	}
	if len(claims) > 0 {
		s.config.Pipeline.Submitted(claims, until)
	}
	return submitted
}

// publicState is a state as producers see it. An acknowledged message is done for producers: that its marker is still
// there needs no action of theirs, and they learn of it when they are called.
func publicState(state halfmsg.State) halfmsg.State {
	if state == halfmsg.Acknowledged {
		return halfmsg.Done
	}
	return state
}

// publicResults are results as producers see them.
func publicResults(results []halfmsg.Result) []halfmsg.Result {
	for i := range results {
		results[i].State = publicState(results[i].State)
	}
	return results
}

// answerPanic gives every item of a batch the panic that ended it.
func answerPanic(results *[]halfmsg.Result, n int) {
	p := recover()
	if p == nil {
		return
	}
	*results = make([]halfmsg.Result, n)
	for i := range *results {
		(*results)[i].Err = panicked(p)
	}
}

// gathered has one item answered in a batch that it may share with other calls.
func gathered[T, R any](ctx context.Context, group *batch.Group[T, R], item T) (R, error) {
	results, err := group.Do(ctx, item)
	if err != nil {
		var none R
		return none, err
	}
	return results[0], nil
}

// withStoreTimeout bounds one call to the store from within a handler.
func (s *Server) withStoreTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, storeTimeout)
}

// detachedWriteContext bounds one call that changes something in the store. It goes on when its caller leaves: what was
// written must also be handed on and told, or it would wait until a lease ends.
func (s *Server) detachedWriteContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.withStoreTimeout(context.WithoutCancel(ctx))
}

// heavy waits for one of the few places for calls that bring a whole batch to the store; done must follow. Without the
// bound a few clients could have thousands of batches under way at once.
func (s *Server) heavy(ctx context.Context) (done func(), err error) {
	select {
	case s.batches <- struct{}{}:
		return func() { <-s.batches }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
