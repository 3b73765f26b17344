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
	"github.com/msghandler/msghandler/internal/server/submit"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// maxChange bounds the messages that a call with a filter changes, and the messages looked at.
	maxChange = 10_000
	// changePage is how many messages are changed at a time.
	changePage = 500
)

// change is a retry or a discard: the same request with another move at its end.
type change struct {
	server *Server
	call   string
	event  halfmsg.Event
	action audit.Action
	do     func(ctx context.Context, names []halfmsg.Name) []halfmsg.Result

	reason string
	// filter selects the messages that the request does not name.
	filter string
	dry    bool
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

// selection holds the checked names of a request.
type selection struct {
	names   []halfmsg.Name
	results []halfmsg.Result // an invalid name has its error already
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
	c := change{server: o.server, call: "RetryMessages", event: halfmsg.EventRetry, action: audit.Retry}
	c.do = func(ctx context.Context, names []halfmsg.Name) []halfmsg.Result {
		return o.server.config.Inspector.Retry(ctx, names, callerOf(ctx), c.reason)
	}
	all, err := c.run(ctx, r)
	if err != nil {
		return nil, o.server.fail(c.call, err, halfmsg.None)
	}
	return &adminv1.RetryMessagesResponse{
		Changed: all.count, NextPageToken: all.next, Outcomes: all.outcomes,
	}, nil
}

// DiscardMessages implements AdminService.
func (o *operators) DiscardMessages(
	ctx context.Context, r *adminv1.DiscardMessagesRequest,
) (*adminv1.DiscardMessagesResponse, error) {
	// Messages of a filter must still be in its state, too.
	state := stateOf(cmp.Or(r.GetExpectedState(), r.GetSelection().GetFilter().GetState()))
	c := change{
		server: o.server, call: "DiscardMessages", event: halfmsg.EventDiscard, action: audit.Discard,
		expected: r.GetExpectedState(),
		do: func(ctx context.Context, names []halfmsg.Name) []halfmsg.Result {
			return o.server.config.Inspector.Discard(ctx, names, state)
		},
	}
	all, err := c.run(ctx, r)
	if err != nil {
		return nil, o.server.fail(c.call, err, halfmsg.None)
	}
	return &adminv1.DiscardMessagesResponse{
		Changed: all.count, NextPageToken: all.next, Outcomes: all.outcomes,
	}, nil
}

func (c *change) run(ctx context.Context, r changeRequest) (changed, error) {
	if err := understood(r); err != nil {
		return changed{}, err
	}
	c.reason, c.dry = cut(r.GetReason()), r.GetDryRun()
	if len(r.GetSelection().GetNames()) > 0 {
		wanted, err := c.named(r)
		if err != nil {
			return changed{}, err
		}
		return c.byName(ctx, wanted)
	}
	query, err := c.matching(r)
	if err != nil {
		return changed{}, err
	}
	c.filter = filterText(query)
	return c.byState(ctx, query, limitOf(r.GetLimit()))
}

// named checks the names of a request.
func (c *change) named(r changeRequest) (selection, error) {
	names := r.GetSelection().GetNames()
	k := &check{}
	k.count("selection.names", len(names))
	if r.GetSelection().GetFilter() != nil || r.GetPageToken() != "" {
		k.fail("selection.names", "must be empty where a filter or page_token is set: the request is ambiguous")
	}
	if c.expected != msghandlerv1.State_STATE_UNSPECIFIED {
		k.kept("expected_state", stateOf(c.expected), c.from())
	}
	wanted := selection{results: make([]halfmsg.Result, len(names)), names: make([]halfmsg.Name, len(names))}
	for i, n := range names {
		wanted.names[i] = halfmsg.Name{Producer: n.GetProducer(), ID: n.GetId()}
		one := &check{path: item("selection.names", i) + "."}
		one.name(wanted.names[i])
		wanted.results[i].Err = one.err()
	}
	return wanted, k.err()
}

// matching checks the filter of a request.
func (c *change) matching(r changeRequest) (halfmsg.Query, error) {
	k := &check{}
	query := c.server.query(k, "selection.filter.", r.GetSelection().GetFilter(), c.from())
	query.Cursor = k.cursor(r.GetPageToken(), unfinished(query))
	if c.expected != msghandlerv1.State_STATE_UNSPECIFIED {
		k.fail("expected_state", "must not be set where a filter selects the messages, which has a state")
	}
	if limit := r.GetLimit(); limit < 0 || limit > maxChange {
		k.fail("limit", "must be from 1 to %d, or 0 for %d", maxChange, maxItems)
	}
	return query, k.err()
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

// byName changes the named messages.
func (c *change) byName(ctx context.Context, wanted selection) (changed, error) {
	var places []int
	for i := range wanted.names {
		if wanted.results[i].Err == nil {
			places = append(places, i)
		}
	}
	var all changed
	name := func(i int) halfmsg.Name { return wanted.names[i] }
	submit.InOrder(places, name, wanted.results, func(places []int) []halfmsg.Result {
		part := make([]halfmsg.Name, len(places))
		for k, i := range places {
			part[k] = wanted.names[i]
		}
		results, count := c.apply(ctx, part)
		all.count += count
		return results
	})
	if err := halted(wanted.results); err != nil {
		return all, err
	}
	all.outcomes = c.server.outcomes(c.call, wanted.results)
	return all, nil
}

// byState changes the messages that match, oldest first, a page at a time. When the store fails later, changed messages
// stay changed. The caller then learns their number, and that more messages follow from the failed page on.
func (c *change) byState(ctx context.Context, query halfmsg.Query, limit int) (changed, error) {
	all := changed{next: writeToken(query.Cursor, unfinished(query))}
	scan := maxChange
	for left := limit; left > 0 && scan > 0; {
		query.Limit, query.Scan = min(left, changePage), min(scan, maxScan)
		page, err := c.list(ctx, query)
		if err == nil {
			var count int64
			count, err = c.applyPage(ctx, page)
			all.count += count
		}
		if err != nil && (all.count == 0 || all.next == "") {
			return all, err // No token leads to the first page.
		}
		if err != nil {
			c.server.faults.note(c.call, err)
			return all, nil
		}
		left, scan = left-len(page.Records), scan-page.Looked
		query.Cursor = page.Next
		if all.next = writeToken(page.Next, unfinished(query)); all.next == "" {
			break
		}
	}
	return all, nil
}

// applyPage makes the move for the messages of a page and counts the moves. A dry run counts the messages of the page.
// The error is the reason why some messages can be retried.
func (c *change) applyPage(ctx context.Context, page halfmsg.Page) (int64, error) {
	if c.dry {
		return int64(len(page.Records)), nil
	}
	names := make([]halfmsg.Name, len(page.Records))
	for i := range page.Records {
		names[i] = page.Records[i].Name
	}
	results, count := c.apply(ctx, names)
	for _, r := range results {
		if r.Err != nil && faultOf(r.Err).retry {
			return count, r.Err
		}
	}
	return count, nil
}

func (c *change) list(ctx context.Context, query halfmsg.Query) (halfmsg.Page, error) {
	ctx, cancel := c.server.withStoreTimeout(ctx)
	defer cancel()
	return c.server.config.Inspector.List(ctx, query)
}

// apply makes the move for each name, wakes the loops that go on with the messages, and records the change. A dry run
// only predicts the results.
func (c *change) apply(ctx context.Context, names []halfmsg.Name) ([]halfmsg.Result, int64) {
	if len(names) == 0 {
		return nil, 0
	}
	if c.dry {
		return c.predict(ctx, names)
	}
	results := submit.Detached(ctx, storeTimeout, len(names), func(ctx context.Context) []halfmsg.Result {
		return c.do(ctx, names)
	})
	if c.server.tails.Observing() {
		c.server.tails.Moved(submit.Moves(results, func(i int) halfmsg.Name { return names[i] }))
	}
	c.record(ctx, names, results)
	var done int64
	woken := map[halfmsg.State]struct{}{}
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		done++
		if _, already := woken[r.State]; !already && c.event == halfmsg.EventRetry {
			woken[r.State] = struct{}{}
			c.server.config.Pipeline.Due(r.State)
		}
	}
	return results, done
}

// predict returns the results of a change without making it.
func (c *change) predict(ctx context.Context, names []halfmsg.Name) (results []halfmsg.Result, legal int64) {
	ctx, cancel := c.server.withStoreTimeout(ctx)
	defer cancel()
	for _, name := range names {
		record, err := c.server.config.Inspector.Get(ctx, name)
		to, allowed := halfmsg.Next(record.State, c.event)
		switch {
		case err != nil:
			to = record.State
		case !allowed, c.expected != msghandlerv1.State_STATE_UNSPECIFIED && stateOf(c.expected) != record.State:
			to, err = record.State, halfmsg.ErrIllegal
		default:
			legal++
		}
		results = append(results, halfmsg.Result{State: to, Err: err})
	}
	return results, legal
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
