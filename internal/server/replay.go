package server

import (
	"context"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/submit"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// replay is a ReplayMessages under way.
type replay struct {
	server *Server
	how    halfmsg.ReplayHow
	suffix string
	// filter selects the messages that the request does not name.
	filter            string
	replayed, skipped int64
}

const replayCall = "ReplayMessages"

// ReplayMessages implements AdminService.
func (o *operators) ReplayMessages(
	ctx context.Context, r *adminv1.ReplayMessagesRequest,
) (*adminv1.ReplayMessagesResponse, error) {
	response, err := o.replay(ctx, r)
	if err != nil {
		return nil, o.server.fail(replayCall, err, halfmsg.None)
	}
	return response, nil
}

func (o *operators) replay(
	ctx context.Context, r *adminv1.ReplayMessagesRequest,
) (*adminv1.ReplayMessagesResponse, error) {
	if err := understood(r); err != nil {
		return nil, err
	}
	if !o.archives() {
		return nil, halfmsg.ErrNoArchive
	}
	p := &replay{
		server: o.server, suffix: r.GetNewIdSuffix(),
		how: halfmsg.ReplayHow{
			By: callerOf(ctx), Reason: cut(r.GetReason()), DryRun: r.GetDryRun(), MayPublish: o.server.mayPublish,
		},
	}
	if len(r.GetSelection().GetNames()) > 0 {
		return p.byName(ctx, r)
	}
	c := &check{}
	query := o.server.finishedFilter(c, "selection.filter.", r.GetSelection().GetFilter())
	query.Cursor = c.cursor(r.GetPageToken(), history(query))
	if p.suffix != "" {
		c.id("new_id_suffix", "x"+p.suffix)
	}
	if r.GetSelection().GetFilter() == nil {
		c.fail("selection", "must have names or a filter: an empty filter selects the whole archive")
	}
	limit := limitOf(r.GetLimit())
	if limit < 0 || limit > maxItems {
		c.fail("limit", "must be from 1 to %d, or 0 for %d", maxItems, maxItems)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	p.filter = finishedText(&query)
	return p.byFilter(ctx, query, limit)
}

// byName replays the named messages.
func (p *replay) byName(
	ctx context.Context, r *adminv1.ReplayMessagesRequest,
) (*adminv1.ReplayMessagesResponse, error) {
	c := &check{}
	names := r.GetSelection().GetNames()
	c.count("selection.names", len(names))
	if r.GetSelection().GetFilter() != nil || r.GetPageToken() != "" || r.GetLimit() != 0 {
		c.fail("selection.names", "must be empty where filter, limit or page_token is set: the request is ambiguous")
	}
	replays := make([]halfmsg.Replay, len(names))
	for i, n := range names {
		c.path = item("selection.names", i) + "."
		name := halfmsg.Name{Producer: n.GetProducer(), ID: n.GetId()}
		replays[i] = halfmsg.Replay{Name: name, Entry: n.GetEntry(), Suffix: p.suffix}
		c.name(name)
		c.id("id with new_id_suffix", replays[i].Becomes().ID)
		c.shortText("entry", n.GetEntry())
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	results := p.apply(ctx, replays)
	if err := halted(results); err != nil {
		return nil, err
	}
	return &adminv1.ReplayMessagesResponse{
		Changed: p.replayed, Outcomes: p.server.outcomes(replayCall, results),
	}, nil
}

// byFilter replays the messages that match, a page at a time. When the store fails later, replayed messages stay so,
// and the caller learns their number and where to go on.
func (p *replay) byFilter(
	ctx context.Context, query halfmsg.FinishedQuery, limit int,
) (*adminv1.ReplayMessagesResponse, error) {
	var failed error
	begun, next := time.Now(), query.Cursor
	for {
		query.Limit, query.Scan, query.Patience = min(limit-int(p.replayed), changePage), maxScan, maxSearch
		var page halfmsg.FinishedPage
		if page, failed = p.list(ctx, query); failed == nil {
			failed = p.applyPage(ctx, page)
		}
		if failed != nil {
			break
		}
		next, query.Cursor = page.Next, page.Next
		if next == "" || int(p.replayed) >= limit || time.Since(begun) > storeTimeout/2 {
			break
		}
	}
	if failed != nil && (p.replayed == 0 || next == "") {
		return nil, failed
	}
	if failed != nil {
		p.server.faults.note(replayCall, failed)
	}
	return &adminv1.ReplayMessagesResponse{
		Changed: p.replayed, Skipped: p.skipped, NextPageToken: writeToken(next, history(query)),
	}, nil
}

func (p *replay) list(ctx context.Context, query halfmsg.FinishedQuery) (halfmsg.FinishedPage, error) {
	ctx, cancel := p.server.withStoreTimeout(ctx)
	defer cancel()
	return p.server.config.History.ListFinished(ctx, query)
}

// applyPage replays the messages of a page. The error is the reason why some may be replayed later.
func (p *replay) applyPage(ctx context.Context, page halfmsg.FinishedPage) error {
	var replays []halfmsg.Replay
	for i := range page.Messages {
		found := &page.Messages[i]
		r := halfmsg.Replay{Name: found.Name, Entry: found.Entry, Suffix: p.suffix}
		if !found.Replayable() || len(r.Becomes().ID) > maxID {
			p.skipped++
			continue
		}
		replays = append(replays, r)
	}
	for _, r := range p.apply(ctx, replays) {
		switch {
		case r.Err == nil:
		case faultOf(r.Err).retry:
			return r.Err
		default:
			p.skipped++
		}
	}
	return nil
}

// apply replays messages, wakes the loop that publishes them, and records who did so.
func (p *replay) apply(ctx context.Context, replays []halfmsg.Replay) []halfmsg.Result {
	if len(replays) == 0 {
		return nil
	}
	results := submit.Detached(ctx, storeTimeout, len(replays), func(ctx context.Context) []halfmsg.Result {
		return p.server.config.History.Replay(ctx, replays, p.how)
	})
	names := make([]halfmsg.Name, len(replays))
	for i, r := range results {
		names[i] = replays[i].Becomes()
		if r.Err == nil {
			p.replayed++
		}
	}
	if p.how.DryRun {
		return results
	}
	if p.server.tails.Observing() {
		p.server.tails.Moved(submit.Moves(results, func(i int) halfmsg.Name { return names[i] }))
	}
	p.server.config.Pipeline.Due(halfmsg.Sendable)
	c := change{server: p.server, action: audit.Replay, reason: p.how.Reason, filter: p.filter}
	c.record(ctx, names, results)
	return results
}

// finishedText describes a filter.
func finishedText(query *halfmsg.FinishedQuery) string {
	parts := append([]string{"archive"}, textsOf([]filterField{
		{"producer", query.Producer},
		{"id", query.ID},
		{"ended", string(query.Ended)},
		{"exchange", query.Exchange},
		{"routing_key", query.RoutingKey},
		{"header", headerText(query.HeaderName)},
	})...)
	for _, part := range []struct {
		name string
		at   time.Time
	}{{"since", query.Since}, {"until", query.Until}} {
		if !part.at.IsZero() {
			parts = append(parts, part.name+"="+part.at.UTC().Format(time.RFC3339))
		}
	}
	return strings.Join(parts, " ")
}
