package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/ground/batch"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// domain is that of every ErrorInfo.
const domain = "msghandler"

// retryAfter is what RetryInfo suggests. Clients add their own jitter and growth.
const retryAfter = time.Second

// fault is how an error is told to a client: never in a driver's words.
type fault struct {
	kind   error
	code   codes.Code
	reason string
	text   string
	// retry adds RetryInfo.
	retry bool
}

// What the server says by itself.
var (
	errStopping  = errors.New("stopping")
	errWaitEnded = errors.New("wait ended")
	errTooMany   = errors.New("too many calls")
	errPanic     = errors.New("panic")

	errCompressed = errors.New("the request is compressed")
	errNoRoomLeft = errors.New("requests under way hold as many bytes as they may")

	errUnknownFields = errors.New("the request has fields that this version does not know")

	errWaits      = errors.New("too many calls that wait")
	errWaitsOfOne = errors.New("too many calls of one producer that wait")
)

// faultTable translates errors, once. The first line that matches counts. Reasons are part of the API: they never
// change.
var faultTable = []fault{
	{halfmsg.ErrUnavailable, codes.Unavailable, "STORE_UNAVAILABLE", "the store is out of reach; nothing was done", true},
	{halfmsg.ErrFull, codes.ResourceExhausted, "STORE_FULL", "the store has no more room; nothing was stored", true},
	{
		halfmsg.ErrOverQuota, codes.ResourceExhausted, "PRODUCER_QUOTA",
		"the producer has as many unfinished messages as it may have; nothing was stored", true,
	},
	{batch.ErrBusy, codes.ResourceExhausted, "TOO_MANY_CALLS", "too many calls are waiting; nothing was done", true},
	{
		errNoRoomLeft, codes.ResourceExhausted, "TOO_MANY_CALLS",
		"the requests under way hold as many bytes as they may; nothing was done: send smaller batches, or come again", true,
	},
	{
		errCompressed, codes.Unimplemented, "COMPRESSED",
		"compressed requests are not supported (grpc-encoding); nothing was done: send requests uncompressed", false,
	},
	{errTooMany, codes.ResourceExhausted, "TOO_MANY_CALLS", "too many calls are under way; nothing was done", true},
	{
		errWaits, codes.ResourceExhausted, "TOO_MANY_CALLS",
		"too many calls wait for the fate of their messages; nothing was done: submit without a wait, or come again", true,
	},
	{
		errWaitsOfOne, codes.ResourceExhausted, "TOO_MANY_CALLS",
		"the producer has as many calls waiting for the fate of messages as it may have; nothing was done: " +
			"submit without a wait, or several messages in one call", true,
	},
	{halfmsg.ErrUncertain, codes.Unknown, "OUTCOME_UNKNOWN", "the outcome is unknown; repeat the call", true},
	{halfmsg.ErrNotFound, codes.NotFound, "MESSAGE_NOT_FOUND", "no such message", false},
	{halfmsg.ErrExists, codes.AlreadyExists, "MESSAGE_EXISTS", "another message has that id; it stays as it is", false},
	{halfmsg.ErrIllegal, codes.FailedPrecondition, "WRONG_STATE", "not allowed in the message's state", false},
	{halfmsg.ErrCorrupt, codes.DataLoss, "RECORD_UNREADABLE", "the stored record cannot be read", false},
	{halfmsg.ErrForbidden, codes.PermissionDenied, "CALLBACK_FORBIDDEN", "the callback target is not allowed", false},
	{errCaller, codes.PermissionDenied, "CALLER_FORBIDDEN", "the caller may not do this", false},
	{
		errUnknownFields, codes.Unimplemented, "UNKNOWN_FIELDS",
		"the request has fields that this version does not know, and without them more messages might be meant; nothing was done", false,
	},
	{errStopping, codes.Unavailable, "STOPPING", "this instance is stopping; the call may be repeated at another", true},
	{errWaitEnded, codes.DeadlineExceeded, "WAIT_ENDED", "submitted; only the wait has ended", false},
	{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE_EXCEEDED", "too late; the outcome is unknown", false},
	{context.Canceled, codes.Canceled, "CANCELED", "the call was canceled; the outcome is unknown", false},
}

// unexpected is for errors that the table does not know.
var unexpected = fault{
	nil, codes.Internal, "INTERNAL", "internal error; the outcome is unknown, and the coordinator's log says more", false,
}

func faultOf(err error) fault {
	for _, f := range faultTable {
		if errors.Is(err, f.kind) {
			return f
		}
	}
	return unexpected
}

// translate makes the status of an error. state is that of the message, or None where there is none to tell.
func translate(err error, state halfmsg.State) *status.Status {
	var invalid *invalidError
	if errors.As(err, &invalid) {
		return invalid.status()
	}
	f := faultOf(err)
	info := &errdetails.ErrorInfo{Reason: f.reason, Domain: domain}
	if state != halfmsg.None {
		info.Metadata = map[string]string{"state": state.String()}
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

// words puts an error in a sentence for the caller.
func (f fault) words(err error, state halfmsg.State) string {
	switch {
	case f.code == codes.PermissionDenied:
		return err.Error() // in words fit for the caller, as Targets promises
	case state != halfmsg.None && f.code == codes.FailedPrecondition:
		return fmt.Sprintf("the message is %s: %s", state, f.text)
	case state != halfmsg.None && f.code == codes.AlreadyExists:
		return fmt.Sprintf("%s (%s)", f.text, state)
	}
	return f.text
}

// faults logs the causes that clients are not told. Where the store is away every call fails, so each kind is logged at
// most once in an interval, with how many there were.
type faults struct {
	logger *slog.Logger

	mu   sync.Mutex
	seen map[string]*spell
}

// spell is a run of failures of one kind.
type spell struct {
	loggedAt time.Time
	silent   int
}

// logInterval is how often one kind of failure is worth a line.
const logInterval = 10 * time.Second

func newFaults(logger *slog.Logger) *faults {
	return &faults{logger: logger, seen: map[string]*spell{}}
}

// note logs an error that the client cannot fix. A request that is wrong in itself is answered and not logged: the
// field and the rule stand in the answer, and an operator could do nothing.
func (f *faults) note(call string, err error) {
	var invalid *invalidError
	if errors.As(err, &invalid) {
		return
	}
	kind := faultOf(err)
	level := slog.LevelError
	switch kind.code {
	case codes.Internal, codes.DataLoss:
	case codes.Unavailable, codes.Unknown, codes.ResourceExhausted:
		level = slog.LevelWarn
	default:
		if !errors.Is(err, errCaller) {
			return
		}
		level = slog.LevelWarn // its caller cannot mend it, and may be up to something
	}
	if silent, due := f.due(kind.reason); due {
		f.logger.Log(context.Background(), level, "a call failed", "call", call, "reason", kind.reason, "cause", err,
			"not_logged_before", silent)
	}
}

func (f *faults) due(reason string) (silent int, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.seen[reason]
	if s == nil {
		s = &spell{}
		f.seen[reason] = s
	}
	if now := time.Now(); now.Sub(s.loggedAt) >= logInterval {
		silent, s.silent, s.loggedAt = s.silent, 0, now
		return silent, true
	}
	s.silent++
	return 0, false
}

// fail logs an error where that is called for and translates it for the client of a call.
func (s *Server) fail(call string, err error, state halfmsg.State) error {
	s.faults.note(call, err)
	return translate(err, state).Err()
}
