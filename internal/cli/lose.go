package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// mayLose is what a discard of messages without a verdict may do.
const mayLose = "Their businesses may have committed. If so, consumers never get these messages: they are lost, " +
	"and the archive cannot replay them. A retry asks their producers."

// errMayLose refuses to lose messages without a question.
var errMayLose = commandline.UsageError{Err: errors.New("the messages are PENDING or ABANDONED: " +
	"their businesses may have committed, and then the messages are lost; " +
	"retry asks their producers, or add --maybe-committed")}

// mayBeCommitted says whether messages of a state have no verdict.
func mayBeCommitted(state msghandlerv1.State) bool {
	return state == msghandlerv1.State_STATE_PENDING || state == msghandlerv1.State_STATE_ABANDONED
}

// agreeToLose asks before the discard of named messages of which some have no verdict.
func (c change) agreeToLose(
	ctx context.Context, s *commandline.Session, a *admin, names []*adminv1.MessageName,
) error {
	var open int64
	for part := range slices.Chunk(names, maxPage) {
		for _, state := range []msghandlerv1.State{msghandlerv1.State_STATE_PENDING, msghandlerv1.State_STATE_ABANDONED} {
			got, err := operate.ChangeMessages(ctx, a.client, c.action, &adminv1.DiscardMessagesRequest{
				Selection: &adminv1.MessageSelection{Names: part}, ExpectedState: state, DryRun: true,
			})
			if err != nil {
				return err
			}
			open += got.GetChanged()
		}
	}
	switch {
	case open == 0:
		return nil
	case c.Yes || canAsk(s) != nil:
		return errMayLose
	}
	return agreeToLose(s, "Discard "+amount(open, "message")+" without a verdict?", open)
}
