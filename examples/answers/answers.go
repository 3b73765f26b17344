// Package answers says what a service answers its own client after a Send: the status-code table as code. Copy the
// package into your service, and change the words. The page docs/reference/codes.md explains each line.
package answers

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/msghandler/msghandler/producer"
)

// Answer is what the client of a service gets.
type Answer struct {
	// Status is the status of HTTP.
	Status int
	// RetryAfter is when the client may repeat the request with the same key, which is always safe. 0: no repeat with
	// this key changes the answer.
	RetryAfter time.Duration
	// Text says to the client what happened, and what to do.
	Text string
	// Alert: only an operator can help, so the service logs an error.
	Alert bool
}

// Done says whether the business of the request has committed, and its message is on its way.
func (a Answer) Done() bool { return a.Status == http.StatusCreated }

// ofKinds has an answer for each kind of error. The first kind that an error has counts: what has committed, then what
// may have committed, then what has not.
var ofKinds = []struct {
	kind   error
	answer Answer
}{
	{producer.ErrAlreadyCommitted, Answer{Status: http.StatusCreated, Text: "done before"}},
	{producer.ErrUnmarked, Answer{Status: http.StatusCreated, Text: "done", Alert: true}},
	{producer.ErrContradicted, Answer{
		Status: http.StatusInternalServerError, Alert: true, Text: "done, but not announced; ask the support",
	}},
	{producer.ErrOutcomeUnknown, Answer{
		Status: http.StatusGatewayTimeout, RetryAfter: 5 * time.Second,
		Text: "done or not done, which is not known yet; repeat the request with the same key",
	}},
	{producer.ErrInFlight, Answer{
		Status: http.StatusConflict, RetryAfter: time.Second,
		Text: "an earlier request with this key is running; repeat the request with the same key",
	}},
	{producer.ErrPermanent, failed}, // the business gives up, also after an error that passes
	{producer.ErrSendAgain, notNow(time.Second, false)},
	{producer.ErrExists, Answer{
		Status: http.StatusUnprocessableEntity, Text: "another request had this key; use a key once",
	}},
	{producer.ErrRolledBack, Answer{
		Status: http.StatusConflict, Text: "not done, and given up; make a new request with a new key",
	}},
	{producer.ErrAbandoned, notNow(5*time.Minute, true)},
	{producer.ErrRejected, Answer{
		Status: http.StatusInternalServerError, Alert: true, Text: "not done: the service is set up wrong; ask the support",
	}},
	{producer.ErrMarkers, notNow(5*time.Second, false)},
	{producer.ErrClosed, notNow(time.Second, false)},
	{producer.ErrUnavailable, unavailable}, // or the answer in ofReasons
	{producer.ErrNotCommitted, failed},     // the business failed, or its COMMIT, and the message is rolled back
	{context.DeadlineExceeded, notNow(time.Second, false)},
	{context.Canceled, notNow(time.Second, false)},
}

// failed is the answer for an error of the business itself that the service has no answer for.
var failed = Answer{
	Status: http.StatusInternalServerError, Alert: true, Text: "not done; make a new request with a new key",
}

// unavailable is the answer for a coordinator that takes no message now, except for the reasons in ofReasons.
var unavailable = notNow(5*time.Second, false)

// ofReasons has the reasons of the coordinator that last shorter or longer.
var ofReasons = map[string]Answer{
	"PRODUCER_RATE":  notNow(time.Second, false),
	"TOO_MANY_CALLS": notNow(time.Second, false),
	"STOPPING":       notNow(time.Second, false),
	"KEY_HELD":       notNow(30*time.Second, true),
	"PRODUCER_QUOTA": notNow(30*time.Second, true),
	"PRODUCER_BYTES": notNow(30*time.Second, true),
	"STORE_FULL":     notNow(time.Minute, true),
	"INTERNAL":       notNow(time.Minute, true),
}

// notNow is the answer for a request of which nothing was done, and which may be repeated.
func notNow(after time.Duration, alert bool) Answer {
	return Answer{
		Status: http.StatusServiceUnavailable, RetryAfter: after, Alert: alert,
		Text: "not done; repeat the request with the same key",
	}
}

// Of returns the answer after a Send with this error. Look for the errors of your own business first: after one of
// them nothing was committed, the message is rolled back, and a new attempt needs a new key.
func Of(err error) Answer {
	if err == nil {
		return Answer{Status: http.StatusCreated, Text: "done"}
	}
	for _, of := range ofKinds {
		switch {
		case !errors.Is(err, of.kind):
		case errors.Is(of.kind, producer.ErrUnavailable):
			return ofUnavailable(err)
		default:
			return of.answer
		}
	}
	return failed
}

// ofUnavailable refines the answer for ErrUnavailable by the reason of the coordinator.
func ofUnavailable(err error) Answer {
	var failure *producer.Error
	if errors.As(err, &failure) {
		if answer, has := ofReasons[failure.Reason]; has {
			return answer
		}
	}
	return unavailable
}
