package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/sql"
)

// ToCoordinator hands messages to the coordinator as half messages and submits them. The producer's Markers must be
// the table's, so that the coordinator's Confirm finds COMMITTED.
func ToCoordinator(p *producer.Producer) Sender { return coordinator{p} }

type coordinator struct{ producer *producer.Producer }

// Send implements Sender. The producer gathers the calls into a few.
func (c coordinator) Send(ctx context.Context, messages []sql.Queued) []Result {
	results := make([]Result, len(messages))
	var sending sync.WaitGroup
	for i, q := range messages {
		sending.Go(func() { results[i] = c.hand(ctx, q) })
	}
	sending.Wait()
	return results
}

// hand stores a message and submits the message in any state that still needs a Submit.
func (c coordinator) hand(ctx context.Context, q sql.Queued) Result {
	if q.Unreadable != nil {
		return Result{Fate: Refused, Err: q.Unreadable}
	}
	id := q.Message.ID
	q.Message.EarlierCopies = q.Claims - 1
	state, err := c.producer.SendHalf(ctx, q.Message)
	stored := err == nil
	if stored && (state == producer.StatePending || state == producer.StateAbandoned) {
		state, err = c.producer.Submit(ctx, id)
	}
	switch {
	case barred(err):
		return Result{Fate: Unreached, Err: err, Unsent: !stored}
	case err != nil:
		return Result{Fate: fateOf(err), Err: err}
	case state == producer.StateDone:
		return Result{Fate: Sent}
	case state == producer.StateRolledBack:
		return Result{Fate: Refused, Err: fmt.Errorf("hand over %s: %w", id, producer.ErrContradicted)}
	}
	return Result{Fate: Handed}
}

// barred reports that the coordinator, or a proxy before it, does not serve this relay: a credential that has expired,
// a rule that was taken away, an address that leads elsewhere. That is no fault of the message. Only the policy of the
// producer judges the message.
func barred(err error) bool {
	var answer *producer.Error
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Code {
	case codes.Unauthenticated, codes.Unimplemented:
		return true
	case codes.PermissionDenied:
		return answer.Reason != "POLICY_FORBIDDEN"
	}
	return false
}

// fateOf separates a refusal of the coordinator from an unreachable coordinator.
func fateOf(err error) Fate {
	for _, refusal := range []error{
		producer.ErrExists, producer.ErrRejected, producer.ErrContradicted, producer.ErrRolledBack,
	} {
		if errors.Is(err, refusal) {
			return Refused
		}
	}
	return Unreached
}
