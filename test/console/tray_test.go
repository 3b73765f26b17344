package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/msghandler/msghandler/internal/console/pages"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// tray is a queue with a dead letter for pages without a broker.
type tray struct {
	pages.Admin
	queue  *adminv1.DeadLetterQueue
	letter *adminv1.DeadLetter
	// others are further dead letters, a group each of so many.
	others map[*adminv1.DeadLetter]int64
}

// morning has dead letters of three causes.
func morning() tray {
	t := trayOf("payments")
	t.others = map[*adminv1.DeadLetter]int64{}
	letter := func(id, cause string) *adminv1.DeadLetter {
		l := proto.CloneOf(t.letter)
		l.Producer, l.FirstCause, l.Reason = "orders", cause, cause
		l.Message.Id, l.Message.Exchange, l.Message.RoutingKey = id, "orders", "order.paid"
		return l
	}
	t.letter = letter("2026-481101", "order 481101: no stock of A-1742")
	t.others[letter("2026-481107", "connect to the database: dial tcp 10.20.8.15:5432: connection refused")] = 212
	t.others[letter("2026-481130", "the amount 0.00 is not positive")] = 3
	return t
}

// trayOf has a text in every field.
func trayOf(text string) tray {
	since := timestamppb.New(time.Now().Add(-3 * time.Hour))
	return tray{
		queue: &adminv1.DeadLetterQueue{
			Name: text, Queue: text + ".dead", Broker: text, Count: wrapperspb.Int64(1), OldestTime: since,
		},
		letter: &adminv1.DeadLetter{
			Producer: text, Consumer: text, Reason: "not " + text, FirstCause: text, Retries: 5, SinceTime: since,
			Message: &msghandlerv1.Message{
				Id: text, Exchange: text, RoutingKey: text, ContentType: text, Headers: map[string]string{text: text},
				Body: []byte(text),
			},
		},
	}
}

// ListDeadLetterQueues implements pages.Admin.
func (t tray) ListDeadLetterQueues(
	context.Context, *adminv1.ListDeadLetterQueuesRequest, ...grpc.CallOption,
) (*adminv1.ListDeadLetterQueuesResponse, error) {
	return &adminv1.ListDeadLetterQueuesResponse{Queues: []*adminv1.DeadLetterQueue{t.queue}}, nil
}

// ListDeadLetters implements pages.Admin.
func (t tray) ListDeadLetters(
	context.Context, *adminv1.ListDeadLettersRequest, ...grpc.CallOption,
) (*adminv1.ListDeadLettersResponse, error) {
	return &adminv1.ListDeadLettersResponse{
		Letters:       append([]*adminv1.DeadLetter{t.letter}, slices.Collect(maps.Keys(t.others))...),
		NextPageToken: "100", Note: "The look ended.",
	}, nil
}

// GetDeadLetter implements pages.Admin.
func (t tray) GetDeadLetter(
	context.Context, *adminv1.GetDeadLetterRequest, ...grpc.CallOption,
) (*adminv1.GetDeadLetterResponse, error) {
	return &adminv1.GetDeadLetterResponse{Letter: t.letter}, nil
}

// CountDeadLetters implements pages.Admin.
func (t tray) CountDeadLetters(
	context.Context, *adminv1.CountDeadLettersRequest, ...grpc.CallOption,
) (*adminv1.CountDeadLettersResponse, error) {
	to := []*adminv1.DeadLetterDestination{{Exchange: "orders", Count: 1}}
	var groups []*adminv1.DeadLetterGroup
	group := func(l *adminv1.DeadLetter, n int64) {
		groups = append(groups, &adminv1.DeadLetterGroup{
			Consumer: l.GetConsumer(), Exchange: l.GetMessage().GetExchange(), RoutingKey: l.GetMessage().GetRoutingKey(),
			Cause: l.GetFirstCause(), Count: n, OldestTime: l.GetSinceTime(),
		})
	}
	group(t.letter, 1)
	for l, n := range t.others {
		group(l, n)
	}
	slices.SortFunc(groups, func(a, b *adminv1.DeadLetterGroup) int { return cmp.Compare(b.GetCount(), a.GetCount()) })
	return &adminv1.CountDeadLettersResponse{Count: 1, More: true, Destinations: to, Groups: groups}, nil
}

// ReplayDeadLetters implements pages.Admin.
func (t tray) ReplayDeadLetters(
	context.Context, *adminv1.ReplayDeadLettersRequest, ...grpc.CallOption,
) (*adminv1.ReplayDeadLettersResponse, error) {
	return &adminv1.ReplayDeadLettersResponse{Changed: 1}, nil
}

// DiscardDeadLetters implements pages.Admin.
func (t tray) DiscardDeadLetters(
	context.Context, *adminv1.DiscardDeadLettersRequest, ...grpc.CallOption,
) (*adminv1.DiscardDeadLettersResponse, error) {
	return &adminv1.DiscardDeadLettersResponse{Changed: 1}, nil
}
