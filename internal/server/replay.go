package server

import (
	"context"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// replay is a ReplayMessages under way.
type replay struct {
	bulk[halfmsg.Replay]
	suffix string
}

// ReplayMessages implements AdminService.
func (o *operators) ReplayMessages(
	ctx context.Context, r *adminv1.ReplayMessagesRequest,
) (*adminv1.ReplayMessagesResponse, error) {
	p := &replay{suffix: r.GetNewIdSuffix()}
	p.server, p.call, p.action = o.server, "ReplayMessages", audit.Replay
	p.reason, p.dry = cut(r.GetReason()), r.GetDryRun()
	p.name = halfmsg.Replay.Becomes
	p.due = func(halfmsg.Result) halfmsg.State { return halfmsg.Sendable }
	how := halfmsg.ReplayHow{By: callerOf(ctx), Reason: p.reason, DryRun: p.dry, MayPublish: o.server.mayPublish}
	p.do = func(ctx context.Context, replays []halfmsg.Replay) []halfmsg.Result {
		return o.server.config.History.Replay(ctx, replays, how)
	}
	err := understood(r)
	if err == nil && !o.archives() {
		err = halfmsg.ErrNoArchive
	}
	response := &adminv1.ReplayMessagesResponse{}
	switch {
	case err != nil:
	case len(r.GetSelection().GetNames()) > 0:
		err = p.byName(ctx, r, response)
	default:
		err = p.byFilter(ctx, r, response)
	}
	if err != nil {
		return nil, o.server.fail(ctx, p.call, err, halfmsg.None)
	}
	response.Changed = p.changed
	return response, nil
}

// byName replays the named messages.
func (p *replay) byName(
	ctx context.Context, r *adminv1.ReplayMessagesRequest, response *adminv1.ReplayMessagesResponse,
) (err error) {
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
		return err
	}
	response.Outcomes, err = p.named(ctx, replays, make([]halfmsg.Result, len(replays)))
	return err
}

// byFilter replays the messages that match, newest first.
func (p *replay) byFilter(
	ctx context.Context, r *adminv1.ReplayMessagesRequest, response *adminv1.ReplayMessagesResponse,
) error {
	c := &check{}
	query := p.server.finishedFilter(c, "selection.filter.", r.GetSelection().GetFilter())
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
		return err
	}
	p.filter = finishedText(&query)
	query.Scan, query.Patience = maxScan, maxSearch
	var skipped int64
	next, err := p.matching(ctx, search[halfmsg.Replay]{
		cursor: query.Cursor, limit: limit, within: storeTimeout / 2,
		list: func(ctx context.Context, cursor string, limit, _ int) (found bulkPage[halfmsg.Replay], err error) {
			ctx, cancel := p.server.withStoreTimeout(ctx)
			defer cancel()
			query.Cursor, query.Limit = cursor, limit
			page, err := p.server.config.History.ListFinished(ctx, query)
			for i := range page.Messages {
				of := halfmsg.Replay{Name: page.Messages[i].Name, Entry: page.Messages[i].Entry, Suffix: p.suffix}
				if !page.Messages[i].Replayable() || len(of.Becomes().ID) > maxID {
					skipped++
					continue
				}
				found.messages = append(found.messages, of)
			}
			found.next = page.Next
			return found, err
		},
	})
	response.Skipped, response.NextPageToken = skipped+p.unchanged, writeToken(next, history(query))
	return err
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
