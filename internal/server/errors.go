package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/attend"
	"github.com/msghandler/msghandler/internal/ground/batch"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
	"github.com/msghandler/msghandler/internal/server/guard"
	"github.com/msghandler/msghandler/internal/server/policy"
	"github.com/msghandler/msghandler/internal/server/submit"
)

// retryAfter is what RetryInfo suggests. Clients add their own jitter and growth.
const retryAfter = time.Second

// fault is how an error is answered to a client: never in a driver's words.
type fault struct {
	kind   error
	code   codes.Code
	reason string
	text   string
	// retry adds RetryInfo.
	retry bool
}

var errUnknownFields = errors.New("the request has fields that this version does not know")

// faultTable translates errors, once. The first line that matches counts. Reasons are part of the API: they never
// change.
var faultTable = []fault{
	{halfmsg.ErrUnavailable, codes.Unavailable, "STORE_UNAVAILABLE", "the store is out of reach; nothing was done", true},
	{halfmsg.ErrFull, codes.ResourceExhausted, "STORE_FULL", "the store has no more room; nothing was stored", true},
	{
		halfmsg.ErrOverQuota, codes.ResourceExhausted, "PRODUCER_QUOTA",
		"the producer has as many unfinished messages as it may have (producers.NAME.max_unfinished, or else " +
			"limits.unfinished); nothing was stored", true,
	},
	{
		halfmsg.ErrKeyHeld, codes.ResourceExhausted, "KEY_HELD",
		"the ordering key has as many unfinished messages as it may have (limits.held_per_key); nothing was stored", true,
	},
	{
		policy.ErrBytes, codes.ResourceExhausted, "PRODUCER_BYTES",
		"the producer's unfinished messages have as many bytes as they may have (producers.NAME.max_unfinished_bytes, " +
			"or else policy.max_unfinished_bytes); nothing was stored", true,
	},
	{
		policy.ErrRate, codes.ResourceExhausted, "PRODUCER_RATE",
		"the producer sends more messages a second than it may (producers.NAME.calls_per_second, or else " +
			"policy.calls_per_second); nothing was stored", true,
	},
	{errNotAttended, codes.Unavailable, "NOT_ATTENDED", "no one attends as the producer; nothing was stored", true},
	{batch.ErrBusy, codes.ResourceExhausted, "TOO_MANY_CALLS", "too many calls are waiting; nothing was done", true},
	{
		attend.ErrTooManyStreams, codes.ResourceExhausted, "TOO_MANY_STREAMS",
		"too many streams attend here, in all or of this producer", true,
	},
	{
		guard.ErrBytes, codes.ResourceExhausted, "TOO_MANY_CALLS",
		"the requests in flight hold as many bytes as they may; nothing was done: send smaller batches, or retry later", true,
	},
	{
		guard.ErrCompressed, codes.Unimplemented, "COMPRESSED",
		"compressed requests are not supported (grpc-encoding, Content-Encoding); nothing was done: " +
			"send requests uncompressed", false,
	},
	{
		guard.ErrTooLarge, codes.InvalidArgument, "REQUEST_TOO_LARGE",
		"the request has more bytes than a request may have (16 MiB, or limits.body and 1 MiB); nothing was done: " +
			"send fewer messages in one call", false,
	},
	{
		guard.ErrTooManyCalls, codes.ResourceExhausted, "TOO_MANY_CALLS",
		"too many calls are in flight; nothing was done: retry later", true,
	},
	{
		guard.ErrTooManyStreams, codes.ResourceExhausted, "TOO_MANY_STREAMS",
		"too many streams that need no identity are open; close some, or retry later", true,
	},
	{
		submit.ErrTooManyWaits, codes.ResourceExhausted, "TOO_MANY_CALLS",
		"too many calls wait for the outcome of their messages; nothing was done: submit without a wait, or retry later",
		true,
	},
	{
		submit.ErrTooManyWaitsOfProducer, codes.ResourceExhausted, "TOO_MANY_CALLS",
		"the producer has as many calls waiting for the outcome of messages as it may have; nothing was done: " +
			"submit without a wait, or several messages in one call", true,
	},
	{
		halfmsg.ErrDeadLettersBusy, codes.Unavailable, "DEAD_LETTERS_BUSY",
		"another call looks at the dead letters, or changes some; nothing was changed", true,
	},
	{
		halfmsg.ErrDeadLettersUnreadable, codes.Unavailable, "DEAD_LETTERS_UNREADABLE",
		"the broker does not show its dead letters; nothing was changed", true,
	},
	{halfmsg.ErrNoDeadLetter, codes.NotFound, "DEAD_LETTER_NOT_FOUND", "no such dead letter, or no such queue", false},
	{
		halfmsg.ErrNoDeadLetterQueues, codes.FailedPrecondition, "NO_DEAD_LETTERS",
		"the configuration names no queue of dead letters; set dead_letters.NAME.queue, and restart the coordinators", false,
	},
	{
		halfmsg.ErrTooManyDeadLetters, codes.FailedPrecondition, "TOO_MANY_DEAD_LETTERS",
		"the topic has more records than a call may read; use msghandler dlq --direct", false,
	},
	{halfmsg.ErrUncertain, codes.Unknown, "OUTCOME_UNKNOWN", "the outcome is unknown; repeat the call", true},
	{halfmsg.ErrNotFound, codes.NotFound, "MESSAGE_NOT_FOUND", "no such message", false},
	{
		halfmsg.ErrNoArchive, codes.FailedPrecondition, "NO_ARCHIVE",
		"this coordinator keeps no archive of finished messages; set archive.retention, and restart the coordinators", false,
	},
	{
		halfmsg.ErrNoBroker, codes.FailedPrecondition, "NO_BROKER",
		"the configuration has no broker of the message's name, so nothing would publish the copy; set brokers.NAME.url",
		false,
	},
	{halfmsg.ErrExists, codes.AlreadyExists, "MESSAGE_EXISTS", "another message has that id; it stays as it is", false},
	{halfmsg.ErrIllegal, codes.FailedPrecondition, "WRONG_STATE", "not allowed in the message's state", false},
	{halfmsg.ErrCorrupt, codes.DataLoss, "RECORD_UNREADABLE", "the stored record cannot be read", false},
	{halfmsg.ErrForbidden, codes.PermissionDenied, "CALLBACK_FORBIDDEN", "the callback target is not allowed", false},
	{
		policy.ErrForbidden, codes.PermissionDenied, "POLICY_FORBIDDEN", "the policy of the producer forbids the message",
		false,
	},
	{errCaller, codes.PermissionDenied, "CALLER_FORBIDDEN", "the caller may not do this", false},
	{access.ErrUnauthenticated, codes.Unauthenticated, "UNAUTHENTICATED", "show a client certificate or a token", false},
	{
		access.ErrUnavailable, codes.Unavailable, "IDENTITY_UNAVAILABLE",
		"the caller's identity cannot be checked now; nothing was done: retry later", true,
	},
	{
		errUnknownFields, codes.Unimplemented, "UNKNOWN_FIELDS",
		"the request has fields that this version does not know, and without them more messages might be meant; " +
			"nothing was done", false,
	},
	{
		attend.ErrDraining, codes.Unavailable, "STOPPING", "this instance is stopping; attend at another", true,
	},
	{
		submit.ErrStopping, codes.Unavailable, "STOPPING", "this instance is stopping; the call may be repeated at another",
		true,
	},
	{submit.ErrWaitEnded, codes.DeadlineExceeded, "WAIT_ENDED", "submitted; only the wait has ended", false},
	{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE_EXCEEDED", "too late; the outcome is unknown", false},
	{context.Canceled, codes.Canceled, "CANCELED", "the call was canceled; the outcome is unknown", false},
}

// unexpected is for errors outside the table.
var unexpected = fault{
	nil, codes.Internal, "INTERNAL", "internal error; the outcome is unknown, and the coordinator's log says more", false,
}

// asPanic returns the panic in an error, or nil. The value of a panic must not decide the answer: a panic with
// ErrUnavailable may come after the write.
func asPanic(err error) *lifecycle.PanicError {
	var failure *lifecycle.PanicError
	errors.As(err, &failure)
	return failure
}

// asInvalid returns the fields of a request that an error complains of, if there are any.
func asInvalid(err error) *invalidError {
	var invalid *invalidError
	if asPanic(err) == nil {
		errors.As(err, &invalid)
	}
	return invalid
}

func faultOf(err error) fault {
	if asPanic(err) != nil {
		return unexpected
	}
	for _, f := range faultTable {
		if errors.Is(err, f.kind) {
			return f
		}
	}
	return unexpected
}

// reasonOf returns the reason in the answer to an error; empty for an invalid request, whose answer names the fields.
func reasonOf(err error) string {
	if asInvalid(err) != nil {
		return ""
	}
	return faultOf(err).reason
}

// translate makes the status of an error. state is the state of the message, or None where it is not known.
func translate(err error, state halfmsg.State) *status.Status {
	if invalid := asInvalid(err); invalid != nil {
		return invalid.status()
	}
	f := faultOf(err)
	info := &errdetails.ErrorInfo{Reason: f.reason, Domain: guard.ErrorDomain}
	if state != halfmsg.None {
		info.Metadata = map[string]string{"state": state.String()}
	}
	var ended *submit.WaitEndedError
	if errors.As(err, &ended) {
		info.Metadata = map[string]string{"state": state.String(), "last_error": ended.LastError}
	}
	var forbidden *policy.ForbiddenError
	if errors.As(err, &forbidden) {
		info.Metadata = map[string]string{"field": forbidden.Field, "key": forbidden.Key}
	}
	details := []protoadapt.MessageV1{info}
	if f.retry {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
	}
	st := status.New(f.code, f.words(err, state))
	if detailed, err := st.WithDetails(details...); err == nil {
		return detailed
	}
	return st
}

// translateUnread makes the client's error of a refusal by the guard.
func translateUnread(err error) error {
	var undecodable *guard.FieldError
	if errors.As(err, &undecodable) {
		err = invalid(undecodable.Field, undecodable.Reason)
	}
	return translate(err, halfmsg.None).Err()
}

// words puts an error in a sentence for the caller.
func (f fault) words(err error, state halfmsg.State) string {
	var ofLetters *halfmsg.DeadLettersError
	var ended *submit.WaitEndedError
	switch {
	case errors.As(err, &ended):
		return f.text + "; last error: " + ended.LastError
	case errors.As(err, &ofLetters):
		return ofLetters.Text
	case f.code == codes.PermissionDenied, f.code == codes.Unauthenticated, errors.Is(err, errNotAttended):
		return err.Error() // in words fit for the caller, as Targets and access promise
	case state != halfmsg.None && f.code == codes.FailedPrecondition:
		return fmt.Sprintf("the message is %s: %s", state, f.text)
	case state != halfmsg.None && f.code == codes.AlreadyExists:
		return fmt.Sprintf("%s (%s)", f.text, state)
	}
	return f.text
}

// faults logs causes, which clients do not learn. While the store is down every call fails, so each kind is logged at
// most once in an interval, with the number of suppressed lines.
type faults struct {
	logger *slog.Logger
	logged *loglimit.Limiter
}

// logInterval is how often one kind of failure is worth a line.
const logInterval = 10 * time.Second

func newFaults(logger *slog.Logger) *faults {
	return &faults{logger: logger, logged: loglimit.New(logInterval)}
}

// note logs an error that the client cannot fix. An invalid request is answered and not logged: the answer holds the
// field and the rule, and an operator could do nothing.
func (f *faults) note(ctx context.Context, call string, err error) {
	if asInvalid(err) != nil {
		return
	}
	kind := faultOf(err)
	level := slog.LevelError
	switch kind.code {
	case codes.Internal, codes.DataLoss:
	case codes.Unavailable, codes.Unknown, codes.ResourceExhausted:
		level = slog.LevelWarn
	default:
		return // the caller can fix it, or it is in the audit trail
	}
	suppressed, due := f.logged.Due(kind.reason)
	if !due {
		return
	}
	attributes := []slog.Attr{
		slog.String("call", call), slog.String("reason", kind.reason), slog.Any("cause", err),
		slog.Int("not_logged_before", suppressed),
	}
	if failure := asPanic(err); failure != nil {
		attributes = append(attributes, slog.String("stack", string(failure.Stack)))
	}
	if trace := traceOf(ctx); trace != "" {
		attributes = append(attributes, slog.String("trace_id", strings.Split(trace, "-")[1]))
	}
	f.logger.LogAttrs(ctx, level, "a call failed", attributes...)
}

// fail logs an error that needs an operator, and translates the error for the client of a call.
func (s *Server) fail(ctx context.Context, call string, err error, state halfmsg.State) error {
	s.faults.note(ctx, call, err)
	return translate(err, state).Err()
}
