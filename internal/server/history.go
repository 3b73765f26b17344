package server

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// endings are the ends of messages in the contract.
var endings = map[adminv1.Ending]halfmsg.Ending{
	adminv1.Ending_ENDING_UNSPECIFIED: "",
	adminv1.Ending_ENDING_DONE:        halfmsg.EndedDone,
	adminv1.Ending_ENDING_ROLLED_BACK: halfmsg.EndedRolledBack,
	adminv1.Ending_ENDING_DISCARDED:   halfmsg.EndedDiscarded,
}

// ListFinished implements AdminService.
func (o *operators) ListFinished(
	ctx context.Context, r *adminv1.ListFinishedRequest,
) (*adminv1.ListFinishedResponse, error) {
	const call = "ListFinished"
	query, err := o.finishedQuery(r)
	if err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	ctx, cancel := o.server.withStoreTimeout(ctx)
	defer cancel()
	page, err := o.server.config.History.ListFinished(ctx, query)
	if err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	response := &adminv1.ListFinishedResponse{
		NextPageToken: writeToken(page.Next, history(query)), FromArchive: o.archives() && !query.Receipts,
	}
	if response.GetFromArchive() && query.Cursor == "" {
		stat, err := o.server.config.History.Archive(ctx)
		if err != nil {
			return nil, o.server.fail(ctx, call, err, halfmsg.None)
		}
		response.ArchiveSize, response.ArchiveOldestTime = stat.Messages, Moment(stat.OldestAt)
		response.ArchiveDropped = stat.Dropped
	}
	for i := range page.Messages {
		response.Messages = append(response.Messages, o.server.finishedFor(access.From(ctx), &page.Messages[i]))
	}
	return response, nil
}

// archives says whether there is an archive.
func (o *operators) archives() bool {
	return o.server.config.History != nil && o.server.config.History.Archives()
}

// finishedQuery checks the request of a listing.
func (o *operators) finishedQuery(r *adminv1.ListFinishedRequest) (halfmsg.FinishedQuery, error) {
	if o.server.config.History == nil {
		return halfmsg.FinishedQuery{}, halfmsg.ErrNoArchive
	}
	if err := understood(r); err != nil {
		return halfmsg.FinishedQuery{}, err
	}
	c := &check{}
	query := o.server.finishedFilter(c, "filter.", r.GetFilter())
	query.Receipts, query.Limit = r.GetReceiptsOnly(), c.pageSize(r.GetPageSize())
	query.Scan, query.Patience = maxScan, maxSearch
	query.Cursor = c.cursor(r.GetPageToken(), history(query))
	if err := c.err(); err != nil {
		return query, err
	}
	if query.OfContent() && (query.Receipts || !o.archives()) || query.Ended == halfmsg.EndedDiscarded && !o.archives() {
		return query, halfmsg.ErrNoArchive
	}
	return query, nil
}

// finishedFilter checks a filter at a path of a request.
func (s *Server) finishedFilter(c *check, path string, f *adminv1.FinishedFilter) halfmsg.FinishedQuery {
	defer c.enter(path)()
	query := halfmsg.FinishedQuery{
		Producer: f.GetProducer(), ID: f.GetId(), Exchange: f.GetExchange(), RoutingKey: f.GetRoutingKey(),
		Since: c.time("since", f.GetSince()), Until: c.time("until", f.GetUntil()),
	}
	var known bool
	if query.Ended, known = endings[f.GetEnding()]; !known {
		c.fail("ending", "is not an ending")
	}
	if query.Producer != "" {
		c.producer("producer", query.Producer)
	}
	if query.ID != "" {
		c.id("id", query.ID)
	}
	c.shortText("exchange", query.Exchange)
	c.shortText("routing_key", query.RoutingKey)
	if s.config.HideBodies && f.GetHeader() != "" {
		c.fail("header", hiddenHeaders)
	}
	query.HeaderName, query.HeaderValue = c.searchedHeader("header", f.GetHeader())
	return query
}

// time checks an optional time.
func (c *check) time(field string, t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	if err := t.CheckValid(); err != nil {
		c.fail(field, "is not a valid time")
	}
	return t.AsTime()
}

// GetFinished implements AdminService.
func (o *operators) GetFinished(
	ctx context.Context, r *adminv1.GetFinishedRequest,
) (*adminv1.GetFinishedResponse, error) {
	const call = "GetFinished"
	name := halfmsg.Name{Producer: r.GetProducer(), ID: r.GetId()}
	c := &check{}
	c.name(name)
	c.shortText("entry", r.GetEntry())
	err := c.err()
	if err == nil && !o.archives() {
		err = halfmsg.ErrNoArchive
	}
	if err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	ctx, cancel := o.server.withStoreTimeout(ctx)
	defer cancel()
	found, err := o.server.config.History.GetFinished(ctx, name, r.GetEntry())
	if err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	return &adminv1.GetFinishedResponse{Message: o.server.finishedFor(access.From(ctx), &found)}, nil
}

// hides says whether bodies and headers are hidden from a caller.
func (s *Server) hides(caller access.Identity) bool {
	return s.config.HideBodies || caller.Role < access.Reader
}

// finishedFor is a finished message as its caller may see it.
func (s *Server) finishedFor(caller access.Identity, f *halfmsg.Finished) *adminv1.FinishedMessage {
	message := &msghandlerv1.Message{
		Id: f.ID, Broker: f.Broker, Exchange: f.Exchange, RoutingKey: f.RoutingKey, ContentType: f.ContentType,
		OrderingKey: f.OrderingKey,
	}
	if !s.hides(caller) {
		message.Body, message.Headers = f.Body, f.Headers
	}
	finished := &adminv1.FinishedMessage{
		Producer: f.Producer, Message: message, FinishTime: Moment(f.At), CreateTime: Moment(f.CreatedAt),
		CommitTime: Moment(f.CommittedAt), Copies: count32(f.Copies), Entry: f.Entry, BodyOmitted: f.BodyLeftOut,
		Replayable: f.Replayable(),
	}
	for word, ended := range endings {
		if ended == f.Ended {
			finished.Ending = word
		}
	}
	if f.Damaged != nil {
		finished.Damage = faultOf(f.Damaged).text
	}
	return finished
}
