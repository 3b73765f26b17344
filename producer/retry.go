package producer

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/batch"
)

// The names of calls in errors.
const (
	opSendHalf = "SendHalfMessage"
	opSubmit   = "Submit"
	opRollback = "Rollback"
	opWait     = "Wait"
)

// callTimeout bounds one attempt. A coordinator answers within milliseconds, or with UNAVAILABLE. After five seconds
// without an answer the connection is dead, and the next attempt takes another.
const callTimeout = 5 * time.Second

// retrySteps begin short, for a coordinator that is being replaced, and stay under the delay of the coordinator's own
// loops.
var retrySteps = backoff.Exponential(50*time.Millisecond, 2*time.Second)

// maxRetryAfter caps the delay that a coordinator may ask for.
const maxRetryAfter = 10 * time.Second

// notFoundRetries bounds the retries of a Submit that overtook its half message: about two seconds in all.
const notFoundRetries = 6

// retry repeats a call while its error may pass and the context lasts.
func retry(ctx context.Context, call func(ctx context.Context) (State, *Error)) (State, error) {
	for failures := 0; ; failures++ {
		state, failure := call(ctx)
		if failure == nil {
			return state, nil
		}
		if ctx.Err() != nil {
			failure.cause = ctx.Err()
			return failure.State, failure
		}
		if !failure.passes(failures) {
			return failure.State, failure
		}
		delay := max(retrySteps.Delay(failures), min(failure.retryAfter, maxRetryAfter))
		if err := backoff.Sleep(ctx, delay); err != nil {
			failure.cause = err
			return failure.State, failure
		}
	}
}

// passes says whether the same call may end better after so many failures.
func (e *Error) passes(failures int) bool {
	switch e.Code {
	case codes.ResourceExhausted:
		// gRPC uses this code also for a message over a size limit, which no retry makes smaller.
		return !strings.Contains(e.Text, "larger than max")
	case codes.Unavailable, codes.Unknown, codes.DeadlineExceeded, codes.Aborted, codes.Internal, codes.Canceled:
		return true
	case codes.NotFound:
		return e.Op == opSubmit && failures < notFoundRetries
	}
	return false
}

// answer is the result of one item of a gathered call.
type answer struct {
	state   State
	failure *Error
}

// gathered makes one item's call through a group.
func gathered[T any](ctx context.Context, g *batch.Group[T, answer], op, id string, item T) (State, *Error) {
	answers, err := g.Do(ctx, item)
	switch {
	case errors.Is(err, batch.ErrBusy):
		return 0, &Error{Op: op, ID: id, Code: codes.ResourceExhausted, Text: err.Error(), kind: ErrUnavailable}
	case err != nil:
		return 0, &Error{Op: op, ID: id, Code: codes.DeadlineExceeded, Text: "no answer in time", kind: ErrUnavailable}
	}
	if failure := answers[0].failure; failure != nil {
		return failure.State, failure
	}
	return answers[0].state, nil
}
