package operate

import (
	"context"

	"google.golang.org/grpc"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Action is a change of messages or of dead letters by an operator.
type Action string

// The actions.
const (
	// Retry is of unfinished messages.
	Retry Action = "retry"
	// Discard is of unfinished messages, and of dead letters.
	Discard Action = "discard"
	// Replay is of finished messages, and of dead letters.
	Replay Action = "replay"
)

// MessagesAnswer is the answer to a call that changes messages.
type MessagesAnswer interface {
	// GetChanged is how many messages were changed; in a dry run how many would be.
	GetChanged() int64
	// GetNextPageToken is where to go on, where more messages may match.
	GetNextPageToken() string
	// GetOutcomes says what became of each named message.
	GetOutcomes() []*msghandlerv1.Outcome
}

// ChangeMessages makes one call that retries or discards messages. A discard's request has all fields of a retry's.
func ChangeMessages(
	ctx context.Context, api adminv1.AdminServiceClient, action Action, r *adminv1.DiscardMessagesRequest,
) (MessagesAnswer, error) {
	if action == Discard {
		return api.DiscardMessages(ctx, r)
	}
	return api.RetryMessages(ctx, &adminv1.RetryMessagesRequest{
		Selection: r.GetSelection(), Limit: r.GetLimit(), PageToken: r.GetPageToken(), Reason: r.GetReason(),
		DryRun: r.GetDryRun(),
	})
}

// Walk makes the calls of a change of the messages that match a filter: each call changes at most limit messages behind
// a page token. Walk ends when most messages are changed, when no more can match, when goOn says so, or with the error
// of a call. It returns how many messages were changed, and the token behind the last call; an empty token says that
// no more can match.
func Walk(
	most int64, after string, call func(limit int64, token string) (MessagesAnswer, error), goOn func(changed int64) bool,
) (changed int64, next string, err error) {
	for next = after; changed < most; {
		answer, err := call(most-changed, next)
		if err != nil {
			return changed, next, err
		}
		changed += answer.GetChanged()
		if next = answer.GetNextPageToken(); next == "" || !goOn(changed) {
			break
		}
	}
	return changed, next, nil
}

// LettersAnswer is the answer to a call that changes dead letters.
type LettersAnswer interface {
	GetChanged() int64
	// GetMore says that the call stopped early.
	GetMore() bool
	// GetProblem says why letters stay.
	GetProblem() string
}

// ChangeDeadLetters makes one call that replays or discards dead letters. The requests have the same fields.
func ChangeDeadLetters(
	ctx context.Context, desk DeadLetterDesk, action Action, r *adminv1.DiscardDeadLettersRequest,
) (LettersAnswer, error) {
	if action == Discard {
		return desk.DiscardDeadLetters(ctx, r)
	}
	return desk.ReplayDeadLetters(ctx, &adminv1.ReplayDeadLettersRequest{
		Queue: r.GetQueue(), Selection: r.GetSelection(), Limit: r.GetLimit(), Reason: r.GetReason(),
	})
}

// DeadLetterDesk is the part of adminv1.AdminServiceClient about the dead letters of a queue: a coordinator's, or that
// of a LocalDesk.
type DeadLetterDesk interface {
	ListDeadLetters(
		ctx context.Context, r *adminv1.ListDeadLettersRequest, options ...grpc.CallOption,
	) (*adminv1.ListDeadLettersResponse, error)
	GetDeadLetter(
		ctx context.Context, r *adminv1.GetDeadLetterRequest, options ...grpc.CallOption,
	) (*adminv1.GetDeadLetterResponse, error)
	CountDeadLetters(
		ctx context.Context, r *adminv1.CountDeadLettersRequest, options ...grpc.CallOption,
	) (*adminv1.CountDeadLettersResponse, error)
	ReplayDeadLetters(
		ctx context.Context, r *adminv1.ReplayDeadLettersRequest, options ...grpc.CallOption,
	) (*adminv1.ReplayDeadLettersResponse, error)
	DiscardDeadLetters(
		ctx context.Context, r *adminv1.DiscardDeadLettersRequest, options ...grpc.CallOption,
	) (*adminv1.DiscardDeadLettersResponse, error)
}

// LocalDesk reads and changes the dead letters of one queue, for the only operator of this process.
type LocalDesk struct {
	desk *Desk
	// Changed is called with each changed letter, where it is set.
	Changed func()
}

// NewLocalDesk describes a queue; the first call connects. The error never quotes the URL.
func NewLocalDesk(s Source) (*LocalDesk, error) {
	desk, err := newDesk([]Source{s}, alone)
	return &LocalDesk{desk: desk}, err
}

func (d *LocalDesk) changed(string, string, string) {
	if d.Changed != nil {
		d.Changed()
	}
}

// ListDeadLetters implements DeadLetterDesk.
func (d *LocalDesk) ListDeadLetters(
	ctx context.Context, r *adminv1.ListDeadLettersRequest, _ ...grpc.CallOption,
) (*adminv1.ListDeadLettersResponse, error) {
	return d.desk.List(ctx, r)
}

// GetDeadLetter implements DeadLetterDesk.
func (d *LocalDesk) GetDeadLetter(
	ctx context.Context, r *adminv1.GetDeadLetterRequest, _ ...grpc.CallOption,
) (*adminv1.GetDeadLetterResponse, error) {
	return d.desk.Get(ctx, r)
}

// CountDeadLetters implements DeadLetterDesk.
func (d *LocalDesk) CountDeadLetters(
	ctx context.Context, r *adminv1.CountDeadLettersRequest, _ ...grpc.CallOption,
) (*adminv1.CountDeadLettersResponse, error) {
	return d.desk.Count(ctx, r)
}

// ReplayDeadLetters implements DeadLetterDesk.
func (d *LocalDesk) ReplayDeadLetters(
	ctx context.Context, r *adminv1.ReplayDeadLettersRequest, _ ...grpc.CallOption,
) (*adminv1.ReplayDeadLettersResponse, error) {
	return d.desk.Replay(ctx, r, d.changed)
}

// DiscardDeadLetters implements DeadLetterDesk.
func (d *LocalDesk) DiscardDeadLetters(
	ctx context.Context, r *adminv1.DiscardDeadLettersRequest, _ ...grpc.CallOption,
) (*adminv1.DiscardDeadLettersResponse, error) {
	return d.desk.Discard(ctx, r, d.changed)
}
