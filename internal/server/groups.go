package server

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

const (
	// sampleSize is about how many messages are read for groups, and maxGroups how many groups are answered.
	sampleSize = 2000
	maxGroups  = 100
	// maxGrouping is for how long messages are read for groups.
	maxGrouping = 500 * time.Millisecond
)

// groupKey is what the messages of a group have in common.
type groupKey struct{ producer, broker, exchange, cause string }

// group gathers the messages of a group.
type group struct {
	groupKey
	count          float64
	oldest, newest *halfmsg.Sampled
}

// GroupMessages implements AdminService.
func (o *operators) GroupMessages(
	ctx context.Context, r *adminv1.GroupMessagesRequest,
) (*adminv1.GroupMessagesResponse, error) {
	const call = "GroupMessages"
	if err := understood(r); err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	c := &check{}
	query := o.server.query(c, "filter.", r.GetFilter(), halfmsg.Unfinished())
	if err := c.err(); err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	query.Limit, query.Patience = sampleSize, maxGrouping
	ctx, cancel := o.server.withStoreTimeout(ctx)
	defer cancel()
	sample, err := o.server.config.Inspector.Sample(ctx, query)
	if err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	groups := grouped(sample.Records)
	response := &adminv1.GroupMessagesResponse{SampleSize: sample.Looked, TotalSize: sample.Total}
	for _, g := range groups[:min(len(groups), maxGroups)] {
		response.Groups = append(response.Groups, g.message())
	}
	response.OmittedGroups = count32(len(groups) - len(response.GetGroups()))
	return response, nil
}

// grouped gathers messages into groups, the largest first.
func grouped(all []halfmsg.Sampled) []*group {
	byKey := map[groupKey]*group{}
	var groups []*group
	for i := range all {
		r := &all[i]
		key := groupKey{r.Producer, r.Broker, r.Exchange, halfmsg.Cause(r.LastError, r.Name)}
		g := byKey[key]
		if g == nil {
			g = &group{groupKey: key, oldest: r, newest: r}
			byKey[key], groups = g, append(groups, g)
		}
		g.count += r.Weight
		if r.CreatedAt.Before(g.oldest.CreatedAt) {
			g.oldest = r
		}
		if r.CreatedAt.After(g.newest.CreatedAt) {
			g.newest = r
		}
	}
	slices.SortFunc(groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.producer, b.producer),
			cmp.Compare(a.broker, b.broker), cmp.Compare(a.exchange, b.exchange), cmp.Compare(a.cause, b.cause))
	})
	return groups
}

// message is the group for the API.
func (g *group) message() *adminv1.MessageGroup {
	return &adminv1.MessageGroup{
		Producer: g.producer, Broker: g.broker, Exchange: g.exchange,
		Cause:            halfmsg.CauseText(g.oldest.LastError, g.oldest.Name),
		Count:            int64(math.Round(g.count)),
		OldestCreateTime: Moment(g.oldest.CreatedAt), NewestCreateTime: Moment(g.newest.CreatedAt),
		ExampleId: g.oldest.ID, ExampleError: cut(g.oldest.LastError),
	}
}

// FindMessages implements AdminService.
func (o *operators) FindMessages(
	ctx context.Context, r *adminv1.FindMessagesRequest,
) (*adminv1.FindMessagesResponse, error) {
	const call = "FindMessages"
	c := &check{}
	c.id("id", r.GetId())
	if n := len(r.GetProducers()); n > maxItems {
		c.fail("producers", "has %d items, more than %d", n, maxItems)
	}
	for i, producer := range r.GetProducers() {
		c.producer(item("producers", i), producer)
	}
	if err := c.err(); err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	ctx, cancel := o.server.withStoreTimeout(ctx)
	defer cancel()
	found, err := o.server.config.Inspector.Find(ctx, r.GetId(), r.GetProducers())
	if err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	response := &adminv1.FindMessagesResponse{}
	for i := range found[:min(len(found), maxItems)] {
		response.Records = append(response.Records, o.server.recordFor(access.From(ctx), &found[i]))
	}
	return response, nil
}
