package console

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// tray is a queue with a dead letter for pages without a broker.
type tray struct {
	queue  *msghandlerv1.DeadLetterQueue
	letter *msghandlerv1.DeadLetter
}

// trayOf has a text in every field.
func trayOf(text string) tray {
	since := timestamppb.New(time.Now().Add(-3 * time.Hour))
	return tray{
		&msghandlerv1.DeadLetterQueue{
			Name: text, Queue: text + ".dead", Broker: text, Count: wrapperspb.Int64(1), OldestTime: since,
		},
		&msghandlerv1.DeadLetter{
			Producer: text, Consumer: text, Reason: "not " + text, FirstCause: text, Retries: 5, SinceTime: since,
			Message: &msghandlerv1.Message{
				Id: text, Exchange: text, RoutingKey: text, ContentType: text, Headers: map[string]string{text: text},
				Body: []byte(text),
			},
		},
	}
}

// ListDeadLetterQueues implements pages.LetterAdmin.
func (t tray) ListDeadLetterQueues(
	context.Context, *msghandlerv1.ListDeadLetterQueuesRequest,
) (*msghandlerv1.ListDeadLetterQueuesResponse, error) {
	return &msghandlerv1.ListDeadLetterQueuesResponse{Queues: []*msghandlerv1.DeadLetterQueue{t.queue}}, nil
}

// ListDeadLetters implements pages.LetterAdmin.
func (t tray) ListDeadLetters(
	context.Context, *msghandlerv1.ListDeadLettersRequest,
) (*msghandlerv1.ListDeadLettersResponse, error) {
	return &msghandlerv1.ListDeadLettersResponse{
		Letters: []*msghandlerv1.DeadLetter{t.letter}, NextPageToken: "100", Note: "The look ended.",
	}, nil
}

// GetDeadLetter implements pages.LetterAdmin.
func (t tray) GetDeadLetter(
	context.Context, *msghandlerv1.GetDeadLetterRequest,
) (*msghandlerv1.GetDeadLetterResponse, error) {
	return &msghandlerv1.GetDeadLetterResponse{Letter: t.letter}, nil
}

// CountDeadLetters implements pages.LetterAdmin.
func (t tray) CountDeadLetters(
	context.Context, *msghandlerv1.CountDeadLettersRequest,
) (*msghandlerv1.CountDeadLettersResponse, error) {
	to := []*msghandlerv1.DeadLetterDestination{{Exchange: "orders", Count: 1}}
	return &msghandlerv1.CountDeadLettersResponse{Count: 1, More: true, Destinations: to}, nil
}

// ReplayDeadLetters implements pages.LetterAdmin.
func (t tray) ReplayDeadLetters(
	context.Context, *msghandlerv1.ReplayDeadLettersRequest,
) (*msghandlerv1.ReplayDeadLettersResponse, error) {
	return &msghandlerv1.ReplayDeadLettersResponse{Replayed: 1}, nil
}

// DiscardDeadLetters implements pages.LetterAdmin.
func (t tray) DiscardDeadLetters(
	context.Context, *msghandlerv1.DiscardDeadLettersRequest,
) (*msghandlerv1.DiscardDeadLettersResponse, error) {
	return &msghandlerv1.DiscardDeadLettersResponse{Discarded: 1}, nil
}
