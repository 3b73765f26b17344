package producer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The kinds of errors, for errors.Is. Unless an error's text says otherwise, the business did not run.
var (
	// ErrUnavailable: the coordinator could not be reached, or took no work, for as long as the call might try. Whether
	// the half message was stored is not known. Call again with the same id and content.
	ErrUnavailable = errors.New("coordinator unavailable; the call may be repeated")
	// ErrExists: another message, with other content, stands under this id.
	ErrExists = errors.New("another message has this id; ids must be unique within the producer")
	// ErrRejected: the coordinator will never take this call unchanged. The error's text names the field.
	ErrRejected = errors.New("refused by the coordinator; repeating the call cannot help")
	// ErrNotFound: the coordinator knows no message of this id (any more).
	ErrNotFound = errors.New("the coordinator knows no such message")
	// ErrAlreadyCommitted: the business of this id has committed before, and its message is delivered without any
	// further call. When you repeat a Send, take this error as success. If the coordinator has forgotten the message
	// meanwhile (done.retention, ten minutes by default), a repeated Send delivers the message once more, as a first
	// copy.
	ErrAlreadyCommitted = errors.New("the business of this id has committed before")
	// ErrRolledBack: the message of this id was rolled back and stays so. A new attempt takes a new id.
	ErrRolledBack = errors.New("the message of this id was rolled back; use a new id for a new attempt")
	// ErrAbandoned: the message of this id was set aside, because no verdict on its business was found. Look at the
	// business data: if the data are there call Submit, otherwise have an operator discard the message.
	ErrAbandoned = errors.New("the message of this id is abandoned; call Submit if its business committed, " +
		"or discard it (msghandler discard)")
	// ErrContradicted: the business HAS committed, but its message had been given up as rolled back meanwhile and will
	// not be delivered. Undo the business, or send the message under a new id. No error wraps both ErrContradicted and
	// ErrRolledBack. With markers in memory or Redis a run gets ErrContradicted when the run commits after another run
	// of the same id has failed; with SQL markers no run can commit then.
	ErrContradicted = errors.New("the business committed after its message had been rolled back; " +
		"the message will not be delivered: undo the business, or send it under a new id")
	// ErrUnmarked: the business HAS committed and its message goes out, but the business left no marker in its
	// transaction, where the store's markers belong. Had the process died just then, the message would have been rolled
	// back. Fix the program: run the business through the store's own Send (or InTx), or call Mark first in the
	// business.
	ErrUnmarked = errors.New("the business committed, and its message goes out, but its transaction left no marker, " +
		"so a crash would have rolled the message back: run it through the marker store's Send, " +
		"or call the store's Mark first in it")
	// ErrInFlight: a Send with this id is running in this process.
	ErrInFlight = errors.New("a Send with this id is running")
	// ErrMarkers: the marker store failed before the business could run. From Send: call again with the same id and
	// content.
	ErrMarkers = errors.New("the marker store failed")
	// ErrClosed: the producer was closed.
	ErrClosed = errors.New("the producer is closed")

	// ErrOutcomeUnknown is for the business function to wrap when the outcome of the transaction is uncertain. The
	// message is then neither submitted nor rolled back; the coordinator asks.
	ErrOutcomeUnknown = errors.New("whether the business committed is not known; the coordinator will ask")
	// ErrNotCommitted is for the business function to wrap when certainly nothing was committed although the error is
	// that of an ended context.
	ErrNotCommitted = errors.New("the business did not commit")
	// ErrSendAgain: nothing was committed, and the same id and content may be sent again. The business could not begin, as
	// its marker could not be written, or the database failed the business for a reason that passes: package marker/sql
	// finds both. A business without SQL markers wraps ErrSendAgain itself. The message is neither submitted nor rolled
	// back, and stays PENDING until another Send, a call of Producer.Rollback, or the coordinator's final question. SQL
	// markers answer this question with ROLLED_BACK; with other markers the message ends as ABANDONED. After that a Send
	// returns ErrRolledBack or ErrAbandoned.
	ErrSendAgain = errors.New("nothing was committed; the message may be sent again under the same id")
	// ErrPermanent is for the business function to wrap, by Permanent, when its message is to be rolled back although the
	// error is one that passes.
	ErrPermanent = errors.New("the business gives its message up")
)

// Permanent is for an error of the business after which another attempt cannot help. The message is rolled back, also
// after an error of the database that passes. Permanent returns nil for nil, and otherwise an error that wraps
// ErrPermanent and err.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrPermanent, err)
}

// Unsure is for an error that leaves open whether the transaction committed, such as any error of Commit. Unsure
// returns nil for nil, and otherwise an error that wraps ErrOutcomeUnknown and err.
func Unsure(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}

// outcomeUnknown reports whether a business error leaves the outcome of the transaction open.
func outcomeUnknown(err error) bool {
	if errors.Is(err, ErrOutcomeUnknown) {
		return true
	}
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	return ended && !errors.Is(err, ErrNotCommitted) && !errors.Is(err, ErrSendAgain) && !errors.Is(err, ErrPermanent)
}

// Error is the error of a call to the coordinator. errors.Is finds this package's Err values in an Error.
type Error struct {
	// Op is the call: SendHalfMessage, Submit, Rollback.
	Op string
	// ID is the message's id.
	ID string
	// Code is the gRPC code of the last answer.
	Code codes.Code
	// Reason is the coordinator's stable name for the failure; empty if the coordinator gave none.
	Reason string
	// Text is the coordinator's own message.
	Text string
	// State is the message's state; 0 if unknown.
	State State

	kind       error
	cause      error
	retryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %v", e.Op, e.ID, e.kind)
	if e.Code != codes.OK && (e.cause == nil || e.Text != e.cause.Error()) {
		fmt.Fprintf(&b, ": %v: %s", e.Code, e.Text)
	}
	if e.cause != nil {
		fmt.Fprintf(&b, ": %v", e.cause)
	}
	return b.String()
}

// Unwrap gives the Err value and, where a context or the SDK itself ended the call, why.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.kind}
	}
	return []error{e.kind, e.cause}
}

// contradicted turns the ErrRolledBack of a call that was made after the commit into ErrContradicted. No error is
// both: a caller that handles ErrRolledBack runs the business again under a new id, and this business has committed.
func contradicted(err error) error {
	var failure *Error
	if !errors.As(err, &failure) {
		return ErrContradicted
	}
	said := *failure
	said.kind = ErrContradicted
	return &said
}

// kindOf gives the Err value for a code.
func kindOf(code codes.Code) error {
	switch code {
	case codes.AlreadyExists:
		return ErrExists
	case codes.NotFound:
		return ErrNotFound
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.OutOfRange,
		codes.FailedPrecondition, codes.DataLoss:
		return ErrRejected
	}
	return ErrUnavailable
}

// kindOfState gives the Err value for a message whose state does not fit the call.
func kindOfState(state State) error {
	switch state {
	case StateSendable, StateDone, StateDead:
		return ErrAlreadyCommitted
	case StateRolledBack:
		return ErrRolledBack
	case StateAbandoned:
		return ErrAbandoned
	}
	return ErrRejected
}

// fail is the error for a message whose state does not fit the call.
func fail(op, id string, state State) *Error {
	return &Error{Op: op, ID: id, State: state, kind: kindOfState(state)}
}

// fromOutcome translates one message's outcome in a batch; nil for OK.
func fromOutcome(op, id string, code codes.Code, text string, state State) *Error {
	if code == codes.OK {
		return nil
	}
	e := &Error{Op: op, ID: id, Code: code, Text: text, State: state, kind: kindOf(code)}
	if code == codes.FailedPrecondition {
		e.kind = kindOfState(state)
	}
	return e
}

// notServing is what grpc-go says of coordinators that it calls no more, because they report themselves unhealthy. A
// health check that was refused has other words, and a reason of its own, which stays.
const notServing = "health check failed. status="

// plainText is the text of a status, in words for people who do not know grpc-go.
func plainText(s *status.Status) string {
	if s.Code() == codes.Unavailable && strings.Contains(s.Message(), notServing) {
		return "no coordinator takes messages now: their Redis is away, or they are stopping (msghandler doctor says more)"
	}
	return s.Message()
}

// fromRPC translates the error of a whole call; nil when there is none.
func fromRPC(op, id string, err error) *Error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	var info *errdetails.ErrorInfo
	var again time.Duration
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			again = d.GetRetryDelay().AsDuration()
		}
	}
	e := fromOutcome(op, id, s.Code(), plainText(s), parseState(info.GetMetadata()["state"]))
	e.Reason = info.GetReason()
	e.retryAfter = again
	return e
}
