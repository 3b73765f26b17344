package submit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/ground/batch"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Create stores a half message, in a batch that it may share with other calls.
func (b *Batcher) Create(ctx context.Context, message halfmsg.Message) (halfmsg.Result, error) {
	return gathered(ctx, b.creates, message)
}

// Rollback removes a half message, in a batch that it may share with other calls.
func (b *Batcher) Rollback(ctx context.Context, name halfmsg.Name) (halfmsg.Result, error) {
	return gathered(ctx, b.rollbacks, name)
}

func gathered[T any](ctx context.Context, group *batch.Group[T, halfmsg.Result], item T) (halfmsg.Result, error) {
	results, err := group.Do(ctx, item)
	if err != nil {
		return halfmsg.Result{}, err
	}
	return results[0], nil
}

// CreateAll stores the half messages at the given places as a batch of their own, and enters their results. An id may
// be in the batch more than once; the answers are those of calls one after the other.
func (b *Batcher) CreateAll(
	ctx context.Context, messages []halfmsg.Message, places []int, results []halfmsg.Result,
) error {
	release, err := b.acquireBatch(ctx)
	if err != nil {
		return err
	}
	defer release()
	name := func(i int) halfmsg.Name { return messages[i].Name }
	InOrder(places, name, results, func(places []int) []halfmsg.Result {
		part := make([]halfmsg.Message, len(places))
		for k, i := range places {
			part[k] = messages[i]
		}
		return Detached(ctx, b.config.StoreTimeout, len(part), func(ctx context.Context) []halfmsg.Result {
			return b.create(ctx, part)
		})
	})
	return nil
}

// Recall answers a SendHalfMessage that may store nothing: a message that is stored already gets its state, any other
// the refusal.
func (b *Batcher) Recall(ctx context.Context, message halfmsg.Message, refused error) (halfmsg.Result, error) {
	result, err := gathered(ctx, b.recalls, message)
	return orRefused(result, refused), err
}

// RecallAll is Recall for the half messages at the given places, whose results are their refusals.
func (b *Batcher) RecallAll(
	ctx context.Context, messages []halfmsg.Message, places []int, results []halfmsg.Result,
) error {
	if len(places) == 0 {
		return nil
	}
	release, err := b.acquireBatch(ctx)
	if err != nil {
		return err
	}
	defer release()
	part := make([]halfmsg.Message, len(places))
	for k, i := range places {
		part[k] = messages[i]
	}
	recalled := Detached(ctx, b.config.StoreTimeout, len(part), func(ctx context.Context) []halfmsg.Result {
		return b.recall(ctx, part)
	})
	for k, i := range places {
		results[i] = orRefused(recalled[k], results[i].Err)
	}
	return nil
}

func orRefused(result halfmsg.Result, refused error) halfmsg.Result {
	if errors.Is(result.Err, halfmsg.ErrNotFound) {
		return halfmsg.Result{Err: refused}
	}
	return result
}

// recall asks about one batch of a group or of a call. A panic becomes the answer.
func (b *Batcher) recall(ctx context.Context, messages []halfmsg.Message) (results []halfmsg.Result) {
	if failure := lifecycle.Recovered(func() { results = b.config.Intake.Recall(ctx, messages) }); failure != nil {
		return slices.Repeat([]halfmsg.Result{{Err: failure}}, len(messages))
	}
	return publicResults(results)
}

// create stores one batch of a group or of a call. As in submitAs, a panic becomes the answer.
func (b *Batcher) create(ctx context.Context, messages []halfmsg.Message) (results []halfmsg.Result) {
	if failure := lifecycle.Recovered(func() {
		results = b.config.Intake.Create(ctx, messages)
		if b.config.Observer.Observing() {
			b.observe(results, func(i int) halfmsg.Name { return messages[i].Name })
		}
	}); failure != nil {
		return slices.Repeat([]halfmsg.Result{{Err: failure}}, len(messages))
	}
	return publicResults(results)
}

func (b *Batcher) rollback(ctx context.Context, names []halfmsg.Name) (results []halfmsg.Result) {
	if failure := lifecycle.Recovered(func() {
		results = b.config.Intake.Rollback(ctx, names)
		if b.config.Observer.Observing() {
			b.observe(results, func(i int) halfmsg.Name { return names[i] })
		}
	}); failure != nil {
		return slices.Repeat([]halfmsg.Result{{Err: failure}}, len(names))
	}
	return publicResults(results)
}

// publicResults are results as producers see them.
func publicResults(results []halfmsg.Result) []halfmsg.Result {
	for i := range results {
		results[i].State = publicState(results[i].State)
	}
	return results
}

func (b *Batcher) observe(results []halfmsg.Result, name func(i int) halfmsg.Name) {
	b.config.Observer.Moved(Moves(results, name))
}

// Moves lists the moves of a batch in which each message without an error has reached a state.
func Moves(results []halfmsg.Result, name func(i int) halfmsg.Name) (moves []halfmsg.Moved) {
	for i, r := range results {
		if r.Err == nil {
			moves = append(moves, halfmsg.Moved{Name: name(i), State: r.State})
		}
	}
	return moves
}

// InOrder answers the places of a batch as calls one after the other would: do gets the places of the names that appear
// for the first time, and then, where there are any, the rest. Once the first place of a name has its answer, the
// answers to the others do not depend on their order.
func InOrder(
	places []int, name func(place int) halfmsg.Name, results []halfmsg.Result, do func(places []int) []halfmsg.Result,
) {
	seen := make(map[halfmsg.Name]struct{}, len(places))
	var first, rest []int
	for _, i := range places {
		if _, again := seen[name(i)]; again {
			rest = append(rest, i)
			continue
		}
		seen[name(i)] = struct{}{}
		first = append(first, i)
	}
	for _, part := range [][]int{first, rest} {
		if len(part) == 0 {
			continue
		}
		for k, result := range do(part) {
			results[part[k]] = result
		}
	}
}

// Detached makes a call that changes n messages in the store, unless its caller has left before. The call goes on
// when its caller leaves: a stored move must also be handed on and observed, or the message would wait for the end of
// a lease.
func Detached(
	ctx context.Context, timeout time.Duration, n int, do func(ctx context.Context) []halfmsg.Result,
) []halfmsg.Result {
	if err := ctx.Err(); err != nil {
		return slices.Repeat([]halfmsg.Result{{Err: err}}, n)
	}
	ctx, cancel := detached(ctx, timeout)
	defer cancel()
	return do(ctx)
}

func detached(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

// acquireBatch waits for one of the slots for calls that bring a batch of their own; release must follow.
func (b *Batcher) acquireBatch(ctx context.Context) (release func(), err error) {
	select {
	case b.batches <- struct{}{}:
		return func() { <-b.batches }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
