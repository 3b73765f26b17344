package server

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// change is a retry or a discard: the same request with another move at its end.
type change struct {
	bulk[halfmsg.Name]
	event halfmsg.Event
	// expected is the state that named messages must be in; STATE_UNSPECIFIED is any.
	expected msghandlerv1.State
}

// changeRequest is a request of either kind.
type changeRequest interface {
	proto.Message
	GetSelection() *adminv1.MessageSelection
	GetLimit() int32
	GetPageToken() string
	GetReason() string
	GetDryRun() bool
}

// changed is the result of a change.
type changed struct {
	count    int64
	next     string // the page token of messages not looked at; empty without such messages
	outcomes []*msghandlerv1.Outcome
}

// RetryMessages implements AdminService.
func (o *operators) RetryMessages(
	ctx context.Context, r *adminv1.RetryMessagesRequest,
) (*adminv1.RetryMessagesResponse, error) {
	c := o.newChange("RetryMessages", audit.Retry, halfmsg.EventRetry)
	c.due = func(r halfmsg.Result) halfmsg.State { return r.State }
	c.do = func(ctx context.Context, names []halfmsg.Name) []halfmsg.Result {
		return o.server.config.Inspector.Retry(ctx, names, callerOf(ctx), c.reason)
	}
	all, err := c.run(ctx, r)
	if err != nil {
		return nil, o.server.fail(ctx, c.call, err, halfmsg.None)
	}
	return &adminv1.RetryMessagesResponse{
		Changed: all.count, NextPageToken: all.next, Outcomes: all.outcomes,
	}, nil
}

// DiscardMessages implements AdminService.
func (o *operators) DiscardMessages(
	ctx context.Context, r *adminv1.DiscardMessagesRequest,
) (*adminv1.DiscardMessagesResponse, error) {
	c := o.newChange("DiscardMessages", audit.Discard, halfmsg.EventDiscard)
	c.expected = r.GetExpectedState()
	// Messages of a filter must still be in its state.
	state := cmp.Or(r.GetExpectedState(), r.GetSelection().GetFilter().GetState())
	c.do = func(ctx context.Context, names []halfmsg.Name) []halfmsg.Result {
		return o.server.config.Inspector.Discard(ctx, names, stateOf(state))
	}
	all, err := c.run(ctx, r)
	if err != nil {
		return nil, o.server.fail(ctx, c.call, err, halfmsg.None)
	}
	return &adminv1.DiscardMessagesResponse{
		Changed: all.count, NextPageToken: all.next, Outcomes: all.outcomes,
	}, nil
}

// newChange returns a change without its request and what it does.
func (o *operators) newChange(call string, action audit.Action, event halfmsg.Event) *change {
	c := &change{event: event}
	c.server, c.call, c.action = o.server, call, action
	c.name = func(n halfmsg.Name) halfmsg.Name { return n }
	c.due = func(halfmsg.Result) halfmsg.State { return halfmsg.None }
	return c
}

func (c *change) run(ctx context.Context, r changeRequest) (changed, error) {
	if err := understood(r); err != nil {
		return changed{}, err
	}
	c.reason, c.dry = cut(r.GetReason()), r.GetDryRun()
	if len(r.GetSelection().GetNames()) > 0 {
		return c.byName(ctx, r)
	}
	return c.byFilter(ctx, r)
}

// byName changes the named messages.
func (c *change) byName(ctx context.Context, r changeRequest) (all changed, err error) {
	selected := r.GetSelection().GetNames()
	k := &check{}
	k.count("selection.names", len(selected))
	if r.GetSelection().GetFilter() != nil || r.GetPageToken() != "" {
		k.fail("selection.names", "must be empty where a filter or page_token is set: the request is ambiguous")
	}
	if c.expected != msghandlerv1.State_STATE_UNSPECIFIED {
		k.kept("expected_state", stateOf(c.expected), c.from())
	}
	if err := k.err(); err != nil {
		return changed{}, err
	}
	names, results := make([]halfmsg.Name, len(selected)), make([]halfmsg.Result, len(selected))
	for i, n := range selected {
		names[i] = halfmsg.Name{Producer: n.GetProducer(), ID: n.GetId()}
		one := &check{path: item("selection.names", i) + "."}
		one.name(names[i])
		results[i].Err = one.err()
	}
	if c.dry {
		c.do = c.predict
	}
	all.outcomes, err = c.named(ctx, names, results)
	all.count = c.changed
	return all, err
}

// byFilter changes the messages that match, oldest first. A dry run counts the messages of the pages.
func (c *change) byFilter(ctx context.Context, r changeRequest) (all changed, err error) {
	k := &check{}
	query := c.server.query(k, "selection.filter.", r.GetSelection().GetFilter(), c.from())
	query.Cursor = k.cursor(r.GetPageToken(), unfinished(query))
	if c.expected != msghandlerv1.State_STATE_UNSPECIFIED {
		k.fail("expected_state", "must not be set where a filter selects the messages, which has a state")
	}
	if limit := r.GetLimit(); limit < 0 || limit > maxChange {
		k.fail("limit", "must be from 1 to %d, or 0 for %d", maxChange, maxItems)
	}
	if err := k.err(); err != nil {
		return changed{}, err
	}
	if c.filter = filterText(query); c.dry {
		c.do = func(_ context.Context, names []halfmsg.Name) []halfmsg.Result {
			return make([]halfmsg.Result, len(names))
		}
	}
	next, err := c.matching(ctx, search[halfmsg.Name]{
		cursor: query.Cursor, limit: limitOf(r.GetLimit()),
		list: func(ctx context.Context, cursor string, limit, scan int) (found bulkPage[halfmsg.Name], err error) {
			ctx, cancel := c.server.withStoreTimeout(ctx)
			defer cancel()
			query.Cursor, query.Limit, query.Scan = cursor, limit, scan
			page, err := c.server.config.Inspector.List(ctx, query)
			for i := range page.Records {
				found.messages = append(found.messages, page.Records[i].Name)
			}
			found.next, found.looked = page.Next, page.Looked
			return found, err
		},
	})
	return changed{count: c.changed, next: writeToken(next, unfinished(query))}, err
}

// from lists the states in which the move is legal.
func (c *change) from() []halfmsg.State {
	return slices.DeleteFunc(halfmsg.Unfinished(), func(state halfmsg.State) bool {
		_, legal := halfmsg.Next(state, c.event)
		return !legal
	})
}

func limitOf(limit int32) int {
	if limit == 0 {
		return maxItems
	}
	return int(limit)
}

// predict returns the results of a change without making it.
func (c *change) predict(ctx context.Context, names []halfmsg.Name) (results []halfmsg.Result) {
	for _, name := range names {
		record, err := c.server.config.Inspector.Get(ctx, name)
		to, allowed := halfmsg.Next(record.State, c.event)
		switch {
		case err != nil:
			to = record.State
		case !allowed, c.expected != msghandlerv1.State_STATE_UNSPECIFIED && stateOf(c.expected) != record.State:
			to, err = record.State, halfmsg.ErrIllegal
		}
		results = append(results, halfmsg.Result{State: to, Err: err})
	}
	return results
}

// callerOf names the caller of a call: by the identity, or else by the address.
func callerOf(ctx context.Context) string {
	return cmp.Or(access.From(ctx).Name, addressOf(ctx))
}

// addressOf is from where a call comes.
func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return "unknown"
}
