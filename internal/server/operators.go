package server

import (
	"context"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// operators is AdminService.
type operators struct {
	msghandlerv1.UnimplementedAdminServiceServer
	*Server
}

// defaultPage is the size of a page when the request does not say.
const defaultPage = 100

// GetMessage implements AdminService.
func (s *operators) GetMessage(
	ctx context.Context, r *msghandlerv1.GetMessageRequest,
) (*msghandlerv1.GetMessageResponse, error) {
	const call = "GetMessage"
	name := halfmsg.Name{Producer: r.GetProducer(), ID: r.GetId()}
	c := &check{}
	c.name(name)
	if err := c.err(); err != nil {
		return nil, s.fail(call, err, halfmsg.None)
	}
	ctx, cancel := s.storeTime(ctx)
	defer cancel()
	record, err := s.config.Inspector.Get(ctx, name)
	if err != nil {
		return nil, s.fail(call, err, halfmsg.None)
	}
	return &msghandlerv1.GetMessageResponse{Record: recordOf(&record)}, nil
}

// ListMessages implements AdminService.
func (s *operators) ListMessages(
	ctx context.Context, r *msghandlerv1.ListMessagesRequest,
) (*msghandlerv1.ListMessagesResponse, error) {
	const call = "ListMessages"
	query := halfmsg.Query{State: stateOf(r.GetState()), Producer: r.GetProducer(), Limit: int(r.GetPageSize())}
	c := &check{}
	c.kept("state", query.State, halfmsg.Kept())
	if query.Producer != "" {
		c.producer("producer", query.Producer)
	}
	switch {
	case query.Limit == 0:
		query.Limit = defaultPage
	case query.Limit < 0 || query.Limit > maxItems:
		c.fail("page_size", "must be from 1 to %d, or 0 for %d", maxItems, defaultPage)
	}
	var ok bool
	if query.Cursor, ok = readToken(r.GetPageToken(), query); !ok {
		c.fail("page_token", "is not one that this listing has given")
	}
	if err := c.err(); err != nil {
		return nil, s.fail(call, err, halfmsg.None)
	}
	ctx, cancel := s.storeTime(ctx)
	defer cancel()
	page, err := s.config.Inspector.List(ctx, query)
	if err != nil {
		return nil, s.fail(call, err, halfmsg.None)
	}
	response := &msghandlerv1.ListMessagesResponse{NextPageToken: writeToken(page.Next, query)}
	for i := range page.Records {
		response.Records = append(response.Records, recordOf(&page.Records[i]))
	}
	return response, nil
}

// GetStats implements AdminService.
func (s *operators) GetStats(
	ctx context.Context, _ *msghandlerv1.GetStatsRequest,
) (*msghandlerv1.GetStatsResponse, error) {
	ctx, cancel := s.storeTime(ctx)
	defer cancel()
	stats, err := s.config.Inspector.Stats(ctx)
	if err != nil {
		return nil, s.fail("GetStats", err, halfmsg.None)
	}
	response := &msghandlerv1.GetStatsResponse{}
	for _, stat := range stats {
		response.States = append(response.States, &msghandlerv1.StateStats{
			State: msghandlerv1.State(stat.State), Count: stat.Count, OldestCreateTime: moment(stat.OldestAt),
		})
	}
	return response, nil
}

// kept checks that a state is one of those that a call can work on.
func (c *check) kept(field string, state halfmsg.State, allowed []halfmsg.State) {
	if !slices.Contains(allowed, state) {
		c.fail(field, "must be one of %s", listed(allowed))
	}
}

// listed names states as the contract does.
func listed(states []halfmsg.State) string {
	text := ""
	for i, state := range states {
		if i > 0 {
			text += ", "
		}
		text += msghandlerv1.State(state).String()
	}
	return text
}

// stateOf is the domain's state; what is out of range becomes None, which no call works on.
func stateOf(state msghandlerv1.State) halfmsg.State {
	if state < 0 || int(state) >= len(halfmsg.States()) {
		return halfmsg.None
	}
	return halfmsg.State(state)
}

func recordOf(r *halfmsg.Record) *msghandlerv1.MessageRecord {
	message := &msghandlerv1.Message{
		Id: r.ID, Exchange: r.Exchange, RoutingKey: r.RoutingKey, Body: r.Body,
		ContentType: r.ContentType, Headers: r.Headers,
	}
	if r.Delay > 0 {
		message.Delay = durationpb.New(r.Delay)
	}
	return &msghandlerv1.MessageRecord{
		Producer: r.Producer, Message: message, State: msghandlerv1.State(r.State), CallbackTarget: r.CallbackTarget,
		CreateTime: moment(r.CreatedAt), UpdateTime: moment(r.UpdatedAt), DueTime: moment(r.DueAt),
		ConfirmAttempts: count32(r.ConfirmAttempts), PublishAttempts: count32(r.PublishAttempts),
		DeleteAttempts: count32(r.DeleteAttempts), LastError: cut(r.LastError), LeaseOwner: r.LeaseOwner, LeaseUntil: moment(r.LeaseUntil),
	}
}

// moment is unset for the zero time.
func moment(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func count32(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) } //nolint:gosec // it is clamped
